"""A conversation as another process keeps it: what it consists of, and how it becomes bytes.

With several gateways their parent process keeps a copy of every conversation, so that another
gateway can go on with it (ADR 118). The keeper never reads the bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec

from core.conversation.items import AudioPart, ImagePart, Item, MessageItem, TextPart
from core.ports import UNKNOWN_LOCATION, DeviceLocation
from pipeline.shared.settings import ConversationProfile

_ITEM_TYPES = {kind.__name__: kind for kind in Item.__args__}
_PART_TYPES = {kind.__name__: kind for kind in (TextPart, AudioPart, ImagePart)}
"Name of a class -> class. Bytes hold the name, because the classes share their fields' names."


class ConversationFacts(msgspec.Struct, frozen=True):
    """All that is known of a conversation besides its items."""

    is_named: bool = True
    language: str | None = None
    person_id: str = ""
    place: DeviceLocation = UNKNOWN_LOCATION
    profile: ConversationProfile | None = None


@dataclass(frozen=True, slots=True)
class KeptItem:
    """One item of a history."""

    item: Item
    is_internal: bool = False
    "True for the server's own tool calls: the model sees them, clients do not."


@dataclass(frozen=True, slots=True)
class KeptConversation:
    """A whole conversation. Images are left out: they are only kept while a session is open."""

    items: Sequence[KeptItem]
    facts: ConversationFacts


class ConversationSource(Protocol):
    """The part of a conversation that a keeper reads."""

    @property
    def key(self) -> str: ...

    def facts(self) -> ConversationFacts: ...

    def kept_items(self) -> Sequence[KeptItem]: ...


class ConversationKeeper(Protocol):
    """Keeps copies of the conversations of this process. Only `recall` waits."""

    def changed(self, conversation: ConversationSource) -> None:
        """Notes that a conversation has changed, or is new."""
        ...

    def forgotten(self, key: str, *, is_released: bool = False) -> None:
        """Notes that a conversation is to be forgotten. `is_released`: only because this process
        needs it no more, or needs the room."""
        ...

    def forgotten_owner(self, key_id: str) -> None:
        """Notes that all conversations of a named key are to be forgotten."""
        ...

    async def recall(self, key: str) -> KeptConversation | None:
        """Returns a conversation that another process has changed last, and makes it one of this
        process. None: the copy here is the newest, or there is none."""
        ...


class NoKeeper:
    """The `ConversationKeeper` of a server with one process."""

    def changed(self, conversation: ConversationSource) -> None: ...

    def forgotten(self, key: str, *, is_released: bool = False) -> None: ...

    def forgotten_owner(self, key_id: str) -> None: ...

    async def recall(self, key: str) -> KeptConversation | None:
        return None


def encode_item(kept: KeptItem) -> bytes:
    """Returns an item as bytes, without its images."""
    item = kept.item
    parts: list[tuple[str, Any]] = []
    if isinstance(item, MessageItem):
        for part in item.parts:
            sent = ImagePart("", part.detail) if isinstance(part, ImagePart) else part
            parts.append((type(sent).__name__, msgspec.to_builtins(sent)))
        item = replace(item, parts=())
    return _encode((type(item).__name__, kept.is_internal, msgspec.to_builtins(item), parts))


def decode_item(data: bytes) -> KeptItem:
    """Returns the item of `encode_item`. Raises msgspec.DecodeError for other bytes."""
    name, is_internal, fields, parts = msgspec.msgpack.decode(
        data, type=tuple[str, bool, dict[str, Any], list[tuple[str, dict[str, Any]]]]
    )
    item: Item
    if name == MessageItem.__name__:  # msgspec converts no union of dataclasses, as its parts are
        read = [msgspec.convert(part, _known(_PART_TYPES, kind)) for kind, part in parts]
        item = MessageItem(**{**fields, "parts": tuple(read)})
    else:
        item = msgspec.convert(fields, _known(_ITEM_TYPES, name))
    return KeptItem(item, is_internal)


def encode_facts(facts: ConversationFacts) -> bytes:
    """Returns the facts as bytes."""
    return _encode(msgspec.to_builtins(facts))


def decode_facts(data: bytes) -> ConversationFacts:
    """Returns the facts of `encode_facts`. Raises msgspec.DecodeError for other bytes."""
    return msgspec.msgpack.decode(data, type=ConversationFacts)


def _encode(value: object) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except UnicodeEncodeError:  # a lone surrogate, which a language model may have written
        return msgspec.msgpack.encode(_mapped_texts(value, _without_surrogates))


def _mapped_texts(value: Any, change: Callable[[str], str]) -> Any:
    match value:
        case str():
            return change(value)
        case dict():
            return {change(name): _mapped_texts(one, change) for name, one in value.items()}
        case list() | tuple():
            return [_mapped_texts(one, change) for one in value]
    return value


def _without_surrogates(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _known(types: dict[str, Any], name: str) -> Any:
    if name not in types:
        raise msgspec.DecodeError(f"no class {name!r}")
    return types[name]
