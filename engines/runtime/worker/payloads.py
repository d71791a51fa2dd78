"""Payloads of a worker's calls: the methods of each kind of engine, their arguments and their
results.

| kind | method | arguments | result |
|---|---|---|---|
| asr | `decode` | `AsrBatch` | one list of `AsrResult` |
| asr | `forget` | the id of an utterance | None |
| tts | `speak` | `SpeakArguments` | a stream of `SpeechMessage` |
| tts | `condition` | samples, as bytes | a stream of one `VoiceMessage` |
| tts | `forget_voice` | the name of a voice | a stream of one `VoiceMessage` |
| llm | `reply` | `ReplyArguments` | a stream of `DeltaMessage` |
| embed | `embed` | a list of `EmbedItem` | one list of `EmbedResult` |
| rerank | `rerank` | a list of `RerankItem` | one list of `RerankResult` |
| clip | `embed` | a list of `ClipItem` | one list of `ClipResult` |
| speaker | `embed` | a list of `SpeakerItem` | one list of `SpeakerResult` |
| codec | `convert` | a list of `CodecItem` | one list of `CodecResult` |
"""

import numpy as np
from msgspec import Struct

from core.audio import Pcm
from core.conversation.usage import RateLimits, TokenUsage
from core.errors import RemoteProtocolError
from core.ports import ToolSpec
from engines.base import (
    AsrItem,
    AsrOptions,
    CallDelta,
    LlmOptions,
    Message,
    TextDelta,
    ToolCall,
    WordMark,
)
from engines.base.voice import StageTime

DECODE, FORGET, SPEAK, REPLY = "decode", "forget", "speak", "reply"
"Names of the methods of speech recognition, voices and language models."

CONDITION, FORGET_VOICE = "condition", "forget_voice"
"Names of the further methods of voices that are made of recordings."

EMBED, RERANK = "embed", "rerank"
"Names of the methods of text models. Models for speakers have `embed`, too."

CONVERT = "convert"
"Name of the method of codecs: one batch may have clips to encode and clips to decode."

LlmDelta = TextDelta | CallDelta | ToolCall | TokenUsage | RateLimits
"A piece of an answer, as `Llm.reply` yields it."


class AsrItemMessage(Struct, frozen=True):
    """An `AsrItem` whose samples are little-endian int16 bytes."""

    utterance: str
    pcm: bytes
    "16 kHz mono samples."
    is_final: bool
    options: AsrOptions

    @classmethod
    def from_item(cls, item: AsrItem) -> "AsrItemMessage":
        """Converts an item to its message."""
        return cls(item.utterance, pcm_to_bytes(item.pcm), item.is_final, item.options)

    def to_item(self) -> AsrItem:
        """Converts the message to an item, whose samples are a read-only view of the bytes. Raises
        RemoteProtocolError if the number of bytes is odd."""
        return AsrItem(self.utterance, pcm_from_bytes(self.pcm), self.is_final, self.options)


class AsrBatch(Struct, frozen=True):
    """One batch to decode."""

    items: list[AsrItemMessage]
    "Items of the batch, at most `AsrInfo.max_batch`."


class SpeakArguments(Struct, frozen=True):
    """One clause to speak. Arguments of `Tts.speak`."""

    text: str
    language: str
    voice: str
    speed: float
    needs_words: bool
    "True: the times of the words are needed."
    ahead_ms: float = 0.0
    "Sound that the listener still has to hear, in ms; negative if the listener waits for it."
    condition: bytes = b""
    "Condition of a voice that the engine may not hold; empty: it is expected to know the voice."


class SpeechMessage(Struct, frozen=True, omit_defaults=True):
    """The next samples of a clause, and the words that were reported before them."""

    pcm: bytes
    "Little-endian int16 samples at the voice's rate, mono."
    words: list[WordMark] = []
    "Words with their times and indices, counted from the start of the clause."
    stages: list[StageTime] = []
    "Times of the stages of this clause and of others, if the engine has stages."


class VoiceMessage(Struct, frozen=True, omit_defaults=True):
    """A voice that was made of a recording."""

    condition: bytes = b""
    "Its condition, in the engine's own form. Empty: the voice was forgotten."


class ReplyArguments(Struct, frozen=True):
    """Arguments of `Llm.reply`."""

    messages: list[Message]
    tools: list[ToolSpec]
    language: str
    options: LlmOptions


class DeltaMessage(Struct, frozen=True, omit_defaults=True):
    """The next piece of an answer: one of these fields is set."""

    text: str | None = None
    call_delta: CallDelta | None = None
    tool_call: ToolCall | None = None
    usage: TokenUsage | None = None
    limits: RateLimits | None = None

    @classmethod
    def from_delta(cls, delta: LlmDelta) -> "DeltaMessage":
        """Converts a piece of an answer to its message."""
        match delta:
            case TextDelta(text):
                return cls(text=text)
            case CallDelta():
                return cls(call_delta=delta)
            case ToolCall():
                return cls(tool_call=delta)
            case TokenUsage():
                return cls(usage=delta)
            case RateLimits():
                return cls(limits=delta)

    def to_delta(self) -> LlmDelta:
        """Converts the message to the piece of an answer."""
        other = self.call_delta or self.tool_call or self.usage or self.limits
        return other or TextDelta(self.text or "")


def pcm_to_bytes(pcm: Pcm) -> bytes:
    """Returns samples as little-endian int16 bytes."""
    return pcm.astype("<i2", copy=False).tobytes()


def pcm_from_bytes(data: bytes) -> Pcm:
    """Returns the samples in little-endian int16 bytes, as a read-only view. Raises
    RemoteProtocolError if the number of bytes is odd."""
    if len(data) % 2:
        raise RemoteProtocolError(f"{len(data)} bytes are not a whole number of samples")
    return np.frombuffer(data, "<i2").astype(np.int16, copy=False)
