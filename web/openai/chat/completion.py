"""Answers to chat requests, in the form of OpenAI's API."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from core.conversation.ids import new_id
from core.conversation.usage import TokenUsage
from engines.base import ToolCall
from web.openai.chat.fields import ChatFields, FunctionCall
from web.openai.chat.models import ChatDelta

FinishReason = Literal["stop", "length", "tool_calls"]


class AnswerToolCall(Struct, frozen=True, kw_only=True):
    """A call that the client has to run."""

    index: int | UnsetType = UNSET
    "Position of the call in the answer; only in a stream."
    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class AnswerMessage(Struct, frozen=True, kw_only=True):
    """The answer."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    tool_calls: tuple[AnswerToolCall, ...] | UnsetType = UNSET


class AnswerChoice(Struct, frozen=True, kw_only=True):
    """One answer of several."""

    index: int = 0
    message: AnswerMessage
    logprobs: None = None
    finish_reason: FinishReason


class CachedTokens(Struct, frozen=True):
    """Tokens of the prompt that the model did not have to compute."""

    cached_tokens: int = 0


class AnswerUsage(Struct, frozen=True, kw_only=True):
    """Numbers of tokens; 0 where the engine does not count them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0
    prompt_tokens_details: CachedTokens = CachedTokens()


class ChatCompletion(Struct, frozen=True, kw_only=True):
    """The whole answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: tuple[AnswerChoice, ...]
    usage: AnswerUsage


class DeltaPart(Struct, frozen=True, kw_only=True):
    """The part of the answer that one event brings."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: tuple[AnswerToolCall, ...] | UnsetType = UNSET


class DeltaChoice(Struct, frozen=True, kw_only=True):
    """One answer of several, within an event."""

    index: int = 0
    delta: DeltaPart
    logprobs: None = None
    finish_reason: FinishReason | None = None


class AnswerChunk(Struct, frozen=True, kw_only=True):
    """One event of a streamed answer."""

    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    choices: tuple[DeltaChoice, ...]
    usage: AnswerUsage | UnsetType | None = UNSET


def usage_of(counted: Sequence[TokenUsage]) -> AnswerUsage:
    """Returns the sum of the rounds of one answer."""
    sent = sum(usage.input_tokens for usage in counted)
    written = sum(usage.output_tokens for usage in counted)
    cached = CachedTokens(sum(usage.cached_tokens for usage in counted))
    return AnswerUsage(
        prompt_tokens=sent,
        completion_tokens=written,
        total_tokens=sent + written,
        prompt_tokens_details=cached,
    )


class StopSequences:
    """Ends a text before the first of its stop sequences; the text comes in pieces.

    A piece that may be the beginning of a stop sequence is held back until that is known.
    """

    def __init__(self, stops: tuple[str, ...]) -> None:
        self._stops = stops
        self._held = ""
        self.is_over = False
        "True once a stop sequence was found."

    def push(self, text: str) -> str:
        """Takes the next piece and returns what is certain to stand before a stop sequence."""
        if self.is_over or not self._stops:
            return "" if self.is_over else text
        text, self._held = self._held + text, ""
        found = [index for stop in self._stops if (index := text.find(stop)) >= 0]
        if found:
            self.is_over = True
            return text[: min(found)]
        kept = max(_overlap_chars(text, stop) for stop in self._stops)
        if kept:
            text, self._held = text[:-kept], text[-kept:]
        return text

    def end(self) -> str:
        """Returns what was held back, at the end of the text."""
        held, self._held = self._held, ""
        return held


def _overlap_chars(text: str, stop: str) -> int:
    """Returns the length of the longest end of `text` with which `stop` begins."""
    lengths = range(min(len(text), len(stop) - 1), 0, -1)
    return next((length for length in lengths if text.endswith(stop[:length])), 0)


@dataclass(slots=True)
class ChatAnswer:
    """One answer while it is written."""

    fields: ChatFields
    created: int
    "Unix time of the request."
    stops: StopSequences
    id: str = field(default_factory=lambda: new_id("chatcmpl"))
    texts: list[str] = field(default_factory=list[str])
    calls: list[AnswerToolCall] = field(default_factory=list[AnswerToolCall])
    counted: list[TokenUsage] = field(default_factory=list[TokenUsage])

    @classmethod
    def begin(cls, fields: ChatFields, created: int) -> "ChatAnswer":
        """Returns an answer without content."""
        return cls(fields, created, StopSequences(fields.stops))

    def push(self, delta: ChatDelta) -> DeltaPart | None:
        """Takes the next piece. Returns what it adds for the client; None: nothing yet."""
        match delta:
            case TokenUsage():
                self.counted.append(delta)
                return None
            case ToolCall():
                return DeltaPart(tool_calls=(self._add(delta),))
            case str():
                return self._text(self.stops.push(delta))

    def end(self) -> DeltaPart | None:
        """Returns what was held back, at the end of the text."""
        return self._text(self.stops.end())

    def _text(self, text: str) -> DeltaPart | None:
        if not text:
            return None
        self.texts.append(text)
        return DeltaPart(content=text)

    def _add(self, call: ToolCall) -> AnswerToolCall:
        arguments = msgspec.json.encode(dict(call.arguments)).decode()
        made = AnswerToolCall(
            index=len(self.calls),
            id=call.call_id,
            function=FunctionCall(call.name, arguments),
        )
        self.calls.append(made)
        return made

    @property
    def finish_reason(self) -> FinishReason:
        """Why the answer ended."""
        if self.calls:
            return "tool_calls"
        # Each round of tools may write as much as this; the last one is the answer.
        limit = self.fields.limit_tokens
        written = self.counted[-1].output_tokens if self.counted else 0
        return "length" if limit is not None and written >= limit else "stop"

    def whole(self) -> ChatCompletion:
        """Returns the whole answer."""
        text = "".join(self.texts)
        calls = tuple(msgspec.structs.replace(call, index=UNSET) for call in self.calls)
        message = AnswerMessage(
            content=text if text or not calls else None, tool_calls=calls or UNSET
        )
        return ChatCompletion(
            id=self.id,
            created=self.created,
            model=self.fields.model,
            choices=(AnswerChoice(message=message, finish_reason=self.finish_reason),),
            usage=usage_of(self.counted),
        )

    def chunk(self, part: DeltaPart, finish: FinishReason | None = None) -> AnswerChunk:
        """Returns the event that adds `part`."""
        return AnswerChunk(
            id=self.id,
            created=self.created,
            model=self.fields.model,
            choices=(DeltaChoice(delta=part, finish_reason=finish),),
            usage=None if self.fields.has_usage_chunk else UNSET,
        )

    def usage_chunk(self) -> AnswerChunk:
        """Returns the event with the number of tokens, which comes last."""
        return AnswerChunk(
            id=self.id,
            created=self.created,
            model=self.fields.model,
            choices=(),
            usage=usage_of(self.counted),
        )


def forwarded_body(sent: Mapping[str, object]) -> dict[str, object]:
    """Returns the client's request for a model server, without what only our door reads."""
    return {name: value for name, value in sent.items() if value is not None}
