"""Items of a conversation in order, and the messages that a language model gets of them. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias, assert_never

from core.conversation.items import (
    AudioPart,
    ContentPart,
    FunctionCallItem,
    FunctionOutputItem,
    ImagePart,
    Item,
    ItemReference,
    McpApprovalRequestItem,
    McpApprovalResponseItem,
    McpCallItem,
    McpListItem,
    MessageItem,
    TextPart,
    utf8_bytes,
)
from core.errors import RequestError
from engines.base import Message, ToolCall
from pipeline.conversation.kept_conversation import KeptItem
from pipeline.tools.calls.arguments import parse_arguments
from pipeline.tools.calls.results import NO_RESULT, refused_result

MAX_IMAGE_BYTES = 8 * 1024 * 1024
"Most bytes of the data URLs of all images; the oldest images are dropped first."
MAX_TEXT_BYTES = 1024 * 1024
"""Most UTF-8 bytes of the text of all items; the oldest are dropped first. It is more than any
context window takes; a client may send 256 kB in one item."""
MAX_ITEMS = 400
"""Most items: a long day of talking. The oldest are dropped first, which bounds the memory of a
conversation."""
CallItem: TypeAlias = FunctionCallItem | McpCallItem | McpApprovalRequestItem
"Items that hold a tool call."
ROOT = "root"
"Value of `previous_item_id` that means: before all other items."


SILENCE = "..."
"Text that the model sees as the user's silence. Without it, models repeat themselves."


NOTHING_SAID = MessageItem("silence", "user", (TextPart(SILENCE),))


def is_after_silence(items: Sequence[Item] | None) -> bool:
    """Returns whether the input ends with a silence instead of words of the user.

    None: the conversation itself.
    """
    return items is not None and NOTHING_SAID in items[-1:]


class ItemSize(NamedTuple):
    """UTF-8 bytes that one item holds."""

    text: int
    images: int


def _ignore_growth(_: int) -> None: ...


class History:
    """Items of one conversation, bounded in number and size.

    Example:

        history.add(MessageItem("item_1", "user", (TextPart("Hello"),)))
        prompt = history.messages("Answer briefly.")  # system message, then the items
    """

    def __init__(self, on_growth: Callable[[int], None] = _ignore_growth) -> None:
        """`on_growth`: called with each change of `size_bytes`; negative when it shrinks."""
        self._on_growth = on_growth
        self._items: list[Item] = []
        self._sizes: dict[str, ItemSize] = {}
        "Size of each item by id. Counted once per version of an item."
        self._internal: set[str] = set()
        "Ids of items of the server's own tool calls: the model sees them, clients do not."

    @property
    def items(self) -> tuple[Item, ...]:
        """All items in order."""
        return tuple(self._items)

    @property
    def kept_items(self) -> tuple[KeptItem, ...]:
        """All items in order, with whether clients see them."""
        return tuple(KeptItem(item, item.id in self._internal) for item in self._items)

    def take_over(self, kept: Iterable[KeptItem]) -> None:
        """Replaces all items by those of another process."""
        while self._items:
            self._drop(0)
        for one in kept:
            self._items.append(one.item)
            if one.is_internal:
                self._internal.add(one.item.id)
            self._count(one.item)
        self._enforce_limits()

    def detach(self) -> None:
        """Stops the reports of growth."""
        self._on_growth = _ignore_growth

    @property
    def size_bytes(self) -> int:
        """UTF-8 bytes of all texts and images."""
        return sum(size.text + size.images for size in self._sizes.values())

    def find(self, item_id: str) -> Item | None:
        """Returns the item with this id, or None."""
        return next((item for item in self._items if item.id == item_id), None)

    def last_id(self) -> str | None:
        """Returns the id of the newest item that clients see."""
        return next((i.id for i in reversed(self._items) if i.id not in self._internal), None)

    def add(
        self, item: Item, previous_item_id: str | None = None, *, is_internal: bool = False
    ) -> str | None:
        """Appends the item, or inserts it after `previous_item_id`. Returns the id of the item that
        it now follows, or None.

        Raises RequestError item_already_exists, item_not_found, invalid_value.
        """
        if self.find(item.id) is not None:
            raise RequestError(
                f"item {item.id!r} already exists", code="item_already_exists", param="item.id"
            )
        if isinstance(item, CallItem):
            _check_arguments(item)
        if isinstance(item, FunctionOutputItem) and not is_internal:
            self._check_call(item)
        if previous_item_id is None:
            previous, index = self.last_id(), len(self._items)
        elif previous_item_id == ROOT:
            previous, index = None, 0
        else:
            previous = self.shown(previous_item_id, "previous_item_id").id
            index = self._index(previous) + 1
        self._items.insert(index, item)
        if is_internal:
            self._internal.add(item.id)
        self._count(item)
        self._enforce_limits()
        return previous

    def replace(self, item: Item) -> None:
        """Replaces the item with the same id. Does nothing if that item was dropped."""
        if self.find(item.id) is not None:
            self._items[self._index(item.id)] = item
            self._count(item)
            self._enforce_limits()

    def truncate(self, item_id: str, text: str) -> MessageItem:
        """Cuts an assistant's message to the text that was heard. Returns the new version.

        Raises RequestError item_not_found, invalid_value.
        """
        item = self._items[self._index(item_id)]
        if not isinstance(item, MessageItem) or item.role != "assistant":
            raise RequestError(
                f"item {item_id!r} is not an assistant message: only those can be truncated",
                code="invalid_value",
                param="item_id",
            )
        part = AudioPart(text) if isinstance(item.parts[0], AudioPart) else TextPart(text)
        cut = replace(item, parts=(part,), status="incomplete")
        self.replace(cut)
        return cut

    def shown(self, item_id: str, param: str = "item_id") -> Item:
        """Returns an item that clients see. Raises RequestError item_not_found."""
        item = self.find(item_id)
        if item is None or item_id in self._internal:
            raise _unknown(item_id, param)
        return item

    def delete(self, item_id: str) -> None:
        """Deletes an item that clients see. Raises RequestError item_not_found."""
        self._drop(self._items.index(self.shown(item_id)))

    def remove(self, item_id: str) -> bool:
        """Removes an item, if it still exists. Returns whether clients saw it."""
        item = self.find(item_id)
        if item is None:
            return False
        is_shown = item_id not in self._internal
        self._drop(self._items.index(item))
        return is_shown

    def resolved(self, items: Sequence[Item | ItemReference]) -> tuple[Item, ...]:
        """Returns the items with references replaced by the items they name. Raises RequestError
        item_not_found, invalid_value."""
        for item in items:
            if isinstance(item, CallItem):
                _check_arguments(item)
        return tuple(
            self.shown(item.id, f"response.input[{index}].id")
            if isinstance(item, ItemReference)
            else item
            for index, item in enumerate(items)
        )

    def forget_images(self, kept_bytes: int = 0) -> None:
        """Drops all images except the newest ones that are together no larger than `kept_bytes`.
        Their items stay."""
        for index in reversed(range(len(self._items))):
            item = self._items[index]
            if not isinstance(item, MessageItem) or not item.images:
                continue
            kept_bytes -= self._sizes[item.id].images
            if kept_bytes < 0:
                unseen = replace(item, parts=tuple(map(_unseen, item.parts)))
                self._items[index] = unseen
                self._count(unseen)

    def shed(self) -> bool:
        """Makes room: drops all images, or else the older half of the items. The newest item stays.
        Returns False when there is nothing to drop."""
        if any(size.images for size in self._sizes.values()):
            self.forget_images()
            return True
        gone = len(self._items) // 2
        for _ in range(gone):
            self._drop(0)
        return gone > 0

    def messages(self, instructions: str) -> list[Message]:
        """Returns the messages for a language model; `instructions` come first, as a system
        message."""
        return messages_of(self._items, instructions)

    def _check_call(self, output: FunctionOutputItem) -> None:
        """Raises RequestError item_not_found for an output without its call: a client with a wrong
        call id would wait for an answer that uses the output."""
        calls = (item for item in self._items if isinstance(item, FunctionCallItem))
        if all(call.call_id != output.call_id for call in calls):
            raise RequestError(
                f"no function call {output.call_id!r} in this conversation",
                code="item_not_found",
                param="item.call_id",
            )

    def _index(self, item_id: str) -> int:
        for index, item in enumerate(self._items):
            if item.id == item_id:
                return index
        raise _unknown(item_id)

    def _enforce_limits(self) -> None:
        text_bytes = sum(size.text for size in self._sizes.values())
        while len(self._items) > MAX_ITEMS or (
            text_bytes > MAX_TEXT_BYTES and len(self._items) > 1
        ):
            text_bytes -= self._sizes[self._items[0].id].text
            self._drop(0)
        if sum(size.images for size in self._sizes.values()) > MAX_IMAGE_BYTES:
            self.forget_images(MAX_IMAGE_BYTES)

    def _count(self, item: Item) -> None:
        """Updates the sizes for a new item, or for a new version of one."""
        before = self._sizes.get(item.id, ItemSize(0, 0))
        size = self._sizes[item.id] = _size(item)
        self._on_growth(sum(size) - sum(before))

    def _drop(self, index: int) -> None:
        gone = self._items.pop(index)
        self._internal.discard(gone.id)
        self._on_growth(-sum(self._sizes.pop(gone.id)))


def messages_of(items: Sequence[Item], instructions: str) -> list[Message]:
    """Returns the messages of items. Empty messages and outputs without their call are left out. A
    result directly follows its call, however late it came: models know no other order."""
    messages = [Message("system", instructions)] if instructions else []
    results = {i.call_id: i.output for i in items if isinstance(i, FunctionOutputItem)}
    results |= {
        item.approval_request_id: refused_result(item.reason or "")
        for item in items
        if isinstance(item, McpApprovalResponseItem) and not item.approve
    }
    made = {item.approval_request_id for item in items if isinstance(item, McpCallItem)}
    for item in items:
        match item:
            case MessageItem(role=role):
                if item.text or item.images:
                    messages.append(
                        Message(role, item.text, images=item.images, speaker=item.speaker)
                    )
            case FunctionCallItem(call_id=call_id, name=name, arguments=arguments):
                messages += _exchange(call_id, name, arguments, results.get(call_id))
            case McpCallItem(id=call_id, known_as=name, arguments=arguments, result=result):
                messages += _exchange(call_id, name, arguments, result)
            case McpApprovalRequestItem(id=call_id, known_as=name, arguments=arguments):
                # an approved call that was made has an item of its own
                if call_id not in made:
                    messages += _exchange(call_id, name, arguments, results.get(call_id))
            case FunctionOutputItem() | McpApprovalResponseItem():
                pass  # added together with its call
            case McpListItem():
                pass  # the request declares these tools already
            case _:
                assert_never(item)
    return messages


def _exchange(call_id: str, name: str, arguments: str, result: str | None) -> list[Message]:
    call = ToolCall(call_id, name, parse_arguments(arguments or "{}"))
    call_message = Message("assistant", tool_calls=(call,))
    return [call_message, Message("tool", NO_RESULT if result is None else result, call_id=call_id)]


def _size(item: Item) -> ItemSize:
    """Returns the UTF-8 bytes of an item's texts and of its images."""
    images = 0
    match item:
        case MessageItem():
            texts = [item.text]
            images = sum(utf8_bytes(image.url) for image in item.images)
        case FunctionCallItem():
            texts = [item.call_id, item.name, item.arguments]
        case FunctionOutputItem():
            texts = [item.call_id, item.output]
        case McpCallItem():
            texts = [item.name, item.arguments, item.result or ""]
        case McpApprovalRequestItem():
            texts = [item.name, item.arguments]
        case McpApprovalResponseItem():
            texts = [item.reason or ""]
        case McpListItem(tools=tools):
            return ItemSize(sum(tool.size_bytes for tool in tools), 0)
        case _:
            assert_never(item)
    return ItemSize(sum(map(utf8_bytes, texts)), images)


def _unseen(part: ContentPart) -> ContentPart:
    return ImagePart("", part.detail) if isinstance(part, ImagePart) else part


def _unknown(item_id: str, param: str = "item_id") -> RequestError:
    return RequestError(
        f"no item {item_id!r} in this conversation", code="item_not_found", param=param
    )


def _check_arguments(call: CallItem) -> None:
    """Raises RequestError invalid_value for arguments that are no JSON object. Models see a
    client's call as it is, so unreadable arguments must not get in."""
    try:
        # the server's own MCP calls begin without arguments
        if call.arguments or isinstance(call, FunctionCallItem):
            parse_arguments(call.arguments)
    except ValueError as exc:
        raise RequestError(
            f"arguments of a function call are a JSON object as a string; these are {exc}",
            code="invalid_value",
            param="item.arguments",
        ) from None
