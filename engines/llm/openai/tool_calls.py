"""Assembles tool calls from the pieces of a stream. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from core.conversation.ids import new_id
from core.errors import RemoteProtocolError
from engines.base import CallDelta, ToolCall
from engines.llm.openai.chunks import ChunkToolCall

MAX_CALLS = 64
"Most tool calls of one answer."
MAX_ARGUMENT_CHARS = 256 * 1024
"Most characters of arguments in one answer. A model that repeats itself never stops writing."


@dataclass(slots=True)
class _PartialToolCall:
    """A tool call as far as it has arrived."""

    index: int | None
    id: str
    name: str
    pieces: list[str] = field(default_factory=list)
    call_id: str = ""
    "Id for our callers, set at first use. It is unique and not empty, unlike the server's `id`."
    sent_count: int = 0
    "Number of pieces that were passed on as `CallDelta`."


class ToolCallAssembler:
    """Assembles the tool calls of one answer.

    In the protocol `index` numbers the calls, the first piece of a call has its id and name, and
    arguments come as pieces of JSON. Some servers leave out ids, give every call the index 0, or
    send a call in one piece.
    """

    def __init__(self) -> None:
        self._calls: list[_PartialToolCall] = []
        self._used_ids = {""}
        self._argument_chars = 0

    def push(self, parts: Sequence[ChunkToolCall]) -> list[CallDelta]:
        """Takes the pieces of one event and returns the new arguments of each call.

        A call is held back until its name is known. Raises RemoteProtocolError above the limits.
        """
        deltas: list[CallDelta] = []
        for part in parts:
            call = self._call_of(part)
            piece = _as_text(part.function.arguments)
            self._argument_chars += len(piece)
            if self._argument_chars > MAX_ARGUMENT_CHARS:
                raise RemoteProtocolError(
                    f"tool calls of more than {MAX_ARGUMENT_CHARS} characters"
                )
            call.pieces.append(piece)
            if call.name and (arguments := "".join(call.pieces[call.sent_count :])):
                call.sent_count = len(call.pieces)
                deltas.append(CallDelta(self._id(call), call.name, arguments))
        return deltas

    def calls(self) -> tuple[ToolCall, ...]:
        """Returns all calls in the order in which they began. Call it at the end of the answer.

        Raises RemoteProtocolError for a call without a name, and for arguments that are not a JSON
        object. They are not replaced by empty ones: "turn off" without a name may mean everything.
        """
        return tuple(ToolCall(self._id(c), _checked_name(c), _arguments(c)) for c in self._calls)

    def _id(self, call: _PartialToolCall) -> str:
        if not call.call_id:
            call.call_id = new_id("call") if call.id in self._used_ids else call.id
            self._used_ids.add(call.call_id)
        return call.call_id

    def _call_of(self, part: ChunkToolCall) -> _PartialToolCall:
        """Returns the call that this piece belongs to; a new one if the piece begins it."""
        known = next((c for c in reversed(self._calls) if c.index == part.index), None)
        if part.index is None and self._calls and not part.function.name:
            return self._calls[-1]  # from a server without indices: the latest call goes on
        if known is not None and not _begins_new_call(known, part):
            known.id = known.id or part.id or ""
            known.name = known.name or part.function.name or ""
            return known
        if len(self._calls) >= MAX_CALLS:
            raise RemoteProtocolError(f"more than {MAX_CALLS} tool calls in one answer")
        call = _PartialToolCall(part.index, part.id or "", part.function.name or "")
        self._calls.append(call)
        return call


def _begins_new_call(known: _PartialToolCall, part: ChunkToolCall) -> bool:
    """Returns True if a piece with the index of a known call begins a new call.

    That is a piece with a name, and with another id or without any index.
    """
    if not part.function.name or (part.id and part.id == known.id):
        return False
    return part.index is None or bool(part.id and known.id)


def _checked_name(call: _PartialToolCall) -> str:
    if not call.name:
        raise RemoteProtocolError("a tool call without a name")
    return call.name


def _as_text(arguments: object) -> str:
    if arguments is None:
        return ""
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def _arguments(call: _PartialToolCall) -> dict[str, object]:
    text = "".join(call.pieces).strip()
    if text in ("", "null"):
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        why = f"a call of tool {call.name[:64]!r} whose arguments are not a JSON object"
        raise RemoteProtocolError(why) from None
