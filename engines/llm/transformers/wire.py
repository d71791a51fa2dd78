"""What the server and a language model's process say to each other, in
`engines.runtime.worker.protocol` frames."""

from typing import Any

from msgspec import Struct
from msgspec.msgpack import Decoder

from engines.runtime.worker.protocol import MessageFrameReader


class LlmLoadRequest(Struct, frozen=True, tag_field="type", tag="load"):
    """First message, once. Answered by `LlmLoadReply`, or `LlmFailureReply` and the end."""

    path: str
    device: str
    dtype: str
    threads: int
    kept: int
    "Computed prompts that are kept for the next turn."


class LlmGenerateRequest(Struct, frozen=True, tag_field="type", tag="generate"):
    """Answered by any number of `LlmTextReply`, then `LlmEndReply` or `LlmFailureReply`; by
    nothing after `LlmAbortRequest`."""

    request_id: int
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    max_tokens: int
    context_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    thinks: bool = False
    "False: templates that know how leave the thoughts out."


class LlmAbortRequest(Struct, frozen=True, tag_field="type", tag="abort"):
    """Nobody listens any more."""

    request_id: int


class LlmLoadReply(Struct, frozen=True, tag_field="type", tag="loaded"):
    device: str
    has_tools: bool
    "Its chat template knows tools."


class LlmTextReply(Struct, frozen=True, tag_field="type", tag="written"):
    request_id: int
    text: str


class LlmEndReply(Struct, frozen=True, tag_field="type", tag="ended"):
    request_id: int
    input_tokens: int
    output_tokens: int
    reused_tokens: int
    "Of the prompt, that were computed for an earlier one."


class LlmFailureReply(Struct, frozen=True, tag_field="type", tag="failed"):
    message: str
    request_id: int | None = None
    "None: the model does not load."
    is_about_length: bool = False
    "The prompt is longer than the model takes."


LlmWorkerRequest = LlmLoadRequest | LlmGenerateRequest | LlmAbortRequest
LlmWorkerReply = LlmLoadReply | LlmTextReply | LlmEndReply | LlmFailureReply


def request_reader() -> MessageFrameReader[LlmWorkerRequest]:
    return MessageFrameReader(Decoder(LlmWorkerRequest))


def reply_reader() -> MessageFrameReader[LlmWorkerReply]:
    return MessageFrameReader(Decoder(LlmWorkerReply))
