"""Messages between the server and a language model's process.

They travel in the frames of `engines.runtime.worker.protocol`.
"""

from typing import Any

from msgspec import Struct
from msgspec.msgpack import Decoder

from engines.runtime.worker.protocol import MessageFrameReader


class LlmLoadRequest(Struct, frozen=True, tag_field="type", tag="load"):
    """Request to load the model: the first message, sent once.

    The answer is `LlmLoadReply`, or `LlmFailureReply` before the process ends.
    """

    path: str
    device: str
    dtype: str
    threads: int
    kept: int
    "Number of KV caches that are kept for later turns."


class LlmGenerateRequest(Struct, frozen=True, tag_field="type", tag="generate"):
    """Request for one answer.

    Any number of `LlmTextReply` follow, then `LlmEndReply` or `LlmFailureReply`. Nothing follows
    after an `LlmAbortRequest`.
    """

    request_id: int
    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]
    max_tokens: int
    context_tokens: int
    temperature: float | None = None
    top_p: float | None = None
    repetition_penalty: float | None = None
    thinks: bool = False
    "False: the chat template is asked to leave thoughts out, if it can."


class LlmAbortRequest(Struct, frozen=True, tag_field="type", tag="abort"):
    """Request to stop an answer that is no longer wanted."""

    request_id: int


class LlmLoadReply(Struct, frozen=True, tag_field="type", tag="loaded"):
    """Reply after the model was loaded."""

    device: str
    has_tools: bool
    "The chat template knows tools."


class LlmTextReply(Struct, frozen=True, tag_field="type", tag="written"):
    """The next piece of an answer."""

    request_id: int
    text: str


class LlmEndReply(Struct, frozen=True, tag_field="type", tag="ended"):
    """End of an answer, with its token counts."""

    request_id: int
    input_tokens: int
    output_tokens: int
    reused_tokens: int
    "Tokens of the prompt that were taken from the cache of an earlier one."


class LlmFailureReply(Struct, frozen=True, tag_field="type", tag="failed"):
    """Failure of one answer, or of loading."""

    message: str
    request_id: int | None = None
    "Answer that failed; None: the model does not load."
    is_about_length: bool = False
    "The prompt is longer than the model takes."


LlmWorkerRequest = LlmLoadRequest | LlmGenerateRequest | LlmAbortRequest
LlmWorkerReply = LlmLoadReply | LlmTextReply | LlmEndReply | LlmFailureReply


def request_reader() -> MessageFrameReader[LlmWorkerRequest]:
    """Returns a reader of the frames to the process."""
    return MessageFrameReader(Decoder(LlmWorkerRequest))


def reply_reader() -> MessageFrameReader[LlmWorkerReply]:
    """Returns a reader of the frames from the process."""
    return MessageFrameReader(Decoder(LlmWorkerReply))
