"""Conversations: history and profile, which outlive connections, and the sessions that use them
now."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, runtime_checkable

from core.access.named_key import CALLER_KEY, NamedKey
from core.conversation.ids import new_id
from core.conversation.items import utf8_bytes
from core.ports import UNKNOWN_LOCATION, DeviceLocation
from pipeline.conversation.history import History
from pipeline.conversation.kept_conversation import (
    ConversationFacts,
    ConversationKeeper,
    KeptConversation,
    KeptItem,
    NoKeeper,
)
from pipeline.shared.settings import ConversationProfile

MAX_CONVERSATIONS = 1000
"""Most conversations that are kept. The longest unused are forgotten first; each costs some 100 kB,
and 1 MiB of text at most."""
KEY_SEPARATOR = "/"
"Separates the id of a named key from the id of its conversation."
MAX_REMEMBERED_BYTES = 128 * 1024 * 1024
"""Most UTF-8 bytes of all conversations together: an eighth of the memory of the smallest machine
that runs a recogniser. Python keeps a text with rare letters in up to four times as many."""


class AnnouncementSession(Protocol):
    """The part of a session that announcements need."""

    def say(self, text: str) -> bool:
        """Speaks `text` unasked. Returns False if the session cannot."""
        ...


@runtime_checkable
class RoomSession(AnnouncementSession, Protocol):
    """A session whose client can say in which room it stands."""

    @property
    def area(self) -> str:
        """Name of the room; empty: the client does not say."""
        ...

    @property
    def conversation_key(self) -> str:
        """Identifies its conversation among those of all keys."""
        ...

    async def ask(self, question: str) -> str | None:
        """Speaks a question and returns the words that are said after it. None: it cannot. Waits
        until it is cancelled."""
        ...


def _ignore_growth(_: int) -> None: ...


def _ignore_id(_: str) -> None: ...


@dataclass(slots=True)
class Conversation:
    """Memory of one conversation. `Conversations` creates those that outlive a request."""

    id: str
    "Id that its clients use."
    history: History = field(default_factory=History)
    sessions: list[AnnouncementSession] = field(default_factory=list[AnnouncementSession])
    "Sessions that are connected to it, the newest last."
    language: str | None = None
    """Language spoken in it last, ISO 639-1. Announcements, and connections that name no language,
    use it."""
    person_id: str = ""
    """Id of the person who spoke last in it, as far as the voice is known; empty: a guest, or
    nobody. Answers to words without a voice have the profile of this person."""
    place: DeviceLocation = UNKNOWN_LOCATION
    """Location of its last connection: tools may take "the lights" for those of that room."""
    is_named: bool = True
    "True if a client chose its id, so that a client may come back to it."
    owner: NamedKey | None = None
    """The only named key whose clients can reach the conversation. None: it belongs to the owner's
    key, or to a device."""
    use_count: int = 0
    "Number of sessions and requests that use it now."
    _profile: ConversationProfile | None = None
    _on_growth: Callable[[int], None] = _ignore_growth
    _on_released: Callable[[str], None] = _ignore_id

    @property
    def key(self) -> str:
        """Identifies it among the conversations of all keys. Tools and announcements use it."""
        return conversation_key(self.id, self.owner)

    @property
    def profile(self) -> ConversationProfile | None:
        """Settings with which its next connection begins. A client removes one of them by sending
        null."""
        return self._profile

    @profile.setter
    def profile(self, profile: ConversationProfile | None) -> None:
        grown = _profile_bytes(profile) - _profile_bytes(self._profile)
        self._profile = profile
        self._on_growth(grown)

    @property
    def size_bytes(self) -> int:
        """UTF-8 bytes of its history and its profile."""
        return self.history.size_bytes + _profile_bytes(self._profile)

    def facts(self) -> ConversationFacts:
        """Returns all that is known of it besides its items."""
        return ConversationFacts(
            self.is_named, self.language, self.person_id, self.place, self._profile
        )

    def kept_items(self) -> Sequence[KeptItem]:
        """Returns its items, as a keeper sees them."""
        return self.history.kept_items

    def take_over(self, kept: KeptConversation) -> None:
        """Goes on with what another process has kept."""
        facts = kept.facts
        self.history.take_over(kept.items)
        self.profile = facts.profile
        self.language, self.person_id = facts.language, facts.person_id
        self.place, self.is_named = facts.place, facts.is_named

    def detach(self) -> None:
        """Stops the reports of growth: a request may still hold a forgotten conversation for a
        moment."""
        self._on_growth = _ignore_growth
        self.history.detach()

    @property
    def is_used(self) -> bool:
        """True if a session or a request uses it now."""
        return bool(self.sessions or self.use_count)

    @contextmanager
    def keep(self) -> Iterator[None]:
        """Keeps the conversation from being forgotten while the context is open."""
        self.use_count += 1
        try:
            yield
        finally:
            self.use_count -= 1
            self._released()

    def remove_session(self, session: AnnouncementSession) -> None:
        """Removes a session whose connection ended."""
        self.sessions.remove(session)
        self._released()

    def _released(self) -> None:
        """Drops images after the last use, and the whole conversation if no client can name it
        again."""
        if not self.is_used:
            self.history.forget_images()
            self._on_released(self.key)


def conversation_key(conversation_id: str, owner: NamedKey | None) -> str:
    """Returns the key of a conversation. Two named keys may use the same id for two conversations.
    The id of a named key comes first, so that no client's id can lead to another key's.
    """
    return conversation_id if owner is None else f"{owner.id}{KEY_SEPARATOR}{conversation_id}"


class Conversations:
    """All conversations that are kept. Also implements `Announcer` for the skills.

    Each named key has ids of its own; `CALLER_KEY` says whose id is meant.

    Example:

        conversation = conversations.get(conversation_id)
        with conversation.keep():
            ...  # it is not forgotten meanwhile
    """

    def __init__(
        self,
        *,
        max_bytes: int = MAX_REMEMBERED_BYTES,
        keeper: ConversationKeeper | None = None,
    ) -> None:
        """`keeper`: keeps copies in another process; None: there is none."""
        self._keeper = keeper or NoKeeper()
        self._conversations: OrderedDict[str, Conversation] = OrderedDict()
        "Key of the conversation -> conversation."
        self._max_bytes = max_bytes
        self._bytes = 0

    @property
    def size_bytes(self) -> int:
        """UTF-8 bytes of all histories and profiles."""
        return self._bytes

    def get(self, conversation_id: str | None, *, is_named: bool = True) -> Conversation:
        """Returns the conversation with this id, or a new one under it. Without an id, returns a
        new one that is forgotten after its last use. `is_named`: the id comes from a client."""
        found = self._find(conversation_id)
        if found is None:
            new, owner = conversation_id or new_id("conv"), CALLER_KEY.get()
            on_growth = partial(self._grow, conversation_key(new, owner))
            found = Conversation(
                new,
                History(on_growth),
                is_named=is_named and bool(conversation_id),
                owner=owner,
                _on_growth=on_growth,
                _on_released=self._forget_if_unnamed,
            )
            self._conversations[found.key] = found
            self._forget_unused(kept_key=found.key)
        found.is_named |= is_named and bool(conversation_id)
        self._conversations.move_to_end(found.key)
        return found

    async def recall(self, conversation_id: str | None) -> None:
        """Takes over the caller's conversation with this id if another process has changed it
        last. Called before a session or a request uses it."""
        if not conversation_id:
            return
        kept = await self._keeper.recall(conversation_key(conversation_id, CALLER_KEY.get()))
        if kept is not None:
            self.get(conversation_id).take_over(kept)

    def has(self, conversation_id: str) -> bool:
        """Returns whether this conversation is kept. Does not count as use."""
        return self._find(conversation_id) is not None

    def forget(self, conversation_id: str) -> None:
        """Forgets a conversation of the caller: at once, or after its last use if it is used now
        and no client names it again. Does nothing for an unknown one."""
        found = self._find(conversation_id)
        if found is None:  # another process may have had it
            self._keeper.forgotten(conversation_key(conversation_id, CALLER_KEY.get()))
            return
        found.is_named = False
        self._keeper.forgotten(found.key)
        if not found.is_used:
            self._forget(found)

    def profile_of(self, conversation_id: str | None) -> ConversationProfile | None:
        """Returns the profile; None for an unknown conversation. Does not count as use."""
        found = self._find(conversation_id)
        return found.profile if found else None

    def forget_owned(self, owner: NamedKey) -> None:
        """Forgets the conversations of a named key. Those in use are forgotten after their use."""
        self._keeper.forgotten_owner(owner.id)
        for conversation in tuple(self._conversations.values()):
            if conversation.owner is not None and conversation.owner.id == owner.id:
                conversation.is_named = False
                self._forget_if_unnamed(conversation.key)

    def place_of(self, conversation_key: str) -> DeviceLocation:
        """Returns the location of its last connection, if known. Does not count as use."""
        found = self._conversations.get(conversation_key)
        return found.place if found else UNKNOWN_LOCATION

    async def announce(self, conversation_key: str, text: str) -> bool:
        """Speaks `text` on the newest session that can. Returns False when there is none."""
        conversation = self._conversations.get(conversation_key)
        if conversation is None:
            return False
        return any(session.say(text) for session in reversed(conversation.sessions))

    def sessions_by_area(self) -> Mapping[str, Sequence[RoomSession]]:
        """Returns the sessions whose clients say in which room they stand, by that room. Those of
        other named keys are left out: their holders are not trusted with questions."""
        caller = CALLER_KEY.get()
        found: dict[str, list[RoomSession]] = {}
        for conversation in self._conversations.values():
            if conversation.owner is None or conversation.owner == caller:
                for session in conversation.sessions:
                    if isinstance(session, RoomSession) and session.area:
                        found.setdefault(session.area, []).append(session)
        return found

    def _find(self, conversation_id: str | None) -> Conversation | None:
        """Returns the caller's conversation with this id."""
        return self._conversations.get(conversation_key(conversation_id or "", CALLER_KEY.get()))

    def _forget_if_unnamed(self, conversation_key: str) -> None:
        conversation = self._conversations.get(conversation_key)
        if conversation is not None and not (conversation.is_named or conversation.is_used):
            self._forget(conversation)

    def _forget_unused(self, *, kept_key: str) -> None:
        # OrderedDict: `get` moves a conversation to the end, so the longest unused come first.
        unused = [c for c in self._conversations.values() if not c.is_used and c.key != kept_key]
        for conversation in unused[: max(0, len(self._conversations) - MAX_CONVERSATIONS)]:
            self._forget(conversation)

    def _forget(self, conversation: Conversation) -> None:
        del self._conversations[conversation.key]
        self._bytes -= conversation.size_bytes
        conversation.detach()
        self._keeper.forgotten(conversation.key, is_released=True)

    def _grow(self, changed_key: str, grown_bytes: int) -> None:
        self._bytes += grown_bytes
        if (changed := self._conversations.get(changed_key)) is not None:
            self._keeper.changed(changed)
        if grown_bytes > 0 and self._bytes > self._max_bytes:
            self._make_room()

    def _make_room(self) -> None:
        """Frees memory from the largest conversations, so that a client that fills it takes nothing
        from small ones. Unused conversations are forgotten; those in use lose old items."""
        while self._bytes > self._max_bytes:
            by_size = sorted(
                self._conversations.values(),
                key=lambda conversation: conversation.size_bytes,
                reverse=True,
            )
            if not any(self._free_memory(conversation) for conversation in by_size):
                return

    def _free_memory(self, conversation: Conversation) -> bool:
        """Frees memory of one conversation. Returns False when there is nothing to free."""
        if conversation.is_used:
            return conversation.history.shed()
        self._forget(conversation)
        return True


def _profile_bytes(profile: ConversationProfile | None) -> int:
    return 0 if profile is None else utf8_bytes(profile.instructions)
