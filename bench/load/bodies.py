"""Makes the requests of a load test, and checks its answers."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
from msgspec import Struct

WORDS = (
    "water",
    "light",
    "house",
    "green",
    "morning",
    "river",
    "paper",
    "stone",
    "window",
    "garden",
    "music",
    "winter",
    "summer",
    "road",
    "bread",
    "table",
    "chair",
    "animal",
    "color",
    "number",
    "story",
    "letter",
    "kitchen",
    "island",
    "mountain",
    "forest",
    "machine",
    "market",
    "doctor",
    "school",
)
"Common words, each of which is one token of most models."

SOUND_RATE_HZ = 24_000
"Rate of `response_format: pcm` at `/v1/audio/speech`, as OpenAI documents it; 16 bits, mono."

_BYTES_PER_S = 2 * SOUND_RATE_HZ

SEED = 1
"Seed of the texts. Two runs send the same texts, and no two requests of a run are equal."


AnswerForm = Literal["results", "text", "sound"]
"""How an answer is read: results in one JSON object; text in server-sent events; 16-bit PCM of
24 kHz, as it is made."""


@dataclass(frozen=True, slots=True)
class LoadKind:
    """One kind of load: the path and the bodies of its requests."""

    name: str
    path: str
    "Path of the URL."
    body: Callable[[int], dict[str, object]]
    "Returns the body of a request, by its number."
    expected: int = 0
    "Number of results that an answer must have; 0 for a stream."
    form: AnswerForm = "results"


def embeddings(model: str, *, words: int, inputs: int) -> LoadKind:
    """Returns the load of `/v1/embeddings`. Each request has `inputs` texts of `words` words."""
    return LoadKind(
        "embeddings",
        "/v1/embeddings",
        lambda number: {"model": model, "input": _texts(number, inputs, words)},
        inputs,
    )


def rerank(model: str, *, words: int, documents: int) -> LoadKind:
    """Returns the load of `/v1/rerank`. Each request has `documents` texts of `words` words."""
    return LoadKind(
        "rerank",
        "/v1/rerank",
        lambda number: {
            "model": model,
            "query": _texts(-1 - number, 1, 4)[0],
            "documents": _texts(number, documents, words),
            "return_documents": False,
        },
        documents,
    )


def chat(model: str, *, prompt: str, max_tokens: int) -> LoadKind:
    """Returns the load of `/v1/chat/completions`, streamed with the token usage at the end.

    max_tokens: most tokens of an answer.
    """
    return LoadKind(
        "chat",
        "/v1/chat/completions",
        lambda number: {
            "model": model,
            "messages": [{"role": "user", "content": f"{prompt} ({number})"}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        },
        form="text",
    )


def speech(model: str, *, words: int, voice: str, seed: int) -> LoadKind:
    """Returns the load of `/v1/audio/speech`. Each request has a sentence of three words, and one
    of `words` words. Two runs with other seeds have other texts: servers keep what they spoke."""

    def text(number: int) -> str:
        source = random.Random(seed * 1_000_003 + number)
        sentences = (source.choices(WORDS, k=count) for count in (3, words))
        return " ".join(f"{' '.join(some).capitalize()}." for some in sentences)

    return LoadKind(
        "tts",
        "/v1/audio/speech",
        lambda number: {
            "model": model,
            "input": text(number),
            "voice": voice,
            "response_format": "pcm",
        },
        form="sound",
    )


class _Results(Struct, frozen=True):
    data: list[msgspec.Raw] = []
    results: list[msgspec.Raw] = []


def count_results(body: bytes) -> int:
    """Returns the number of vectors or scores in an answer. Raises msgspec.DecodeError."""
    found = msgspec.json.decode(body, type=_Results)
    return len(found.data or found.results)


def _texts(number: int, count: int, words: int) -> list[str]:
    source = random.Random(SEED * 1_000_003 + number)
    return [" ".join(source.choices(WORDS, k=words)) for _ in range(count)]


class ChunkReport:
    """Collects the chunks of a streamed answer: number of tokens, and an error."""

    def __init__(self) -> None:
        self.text_chunks = 0
        "Number of chunks with text so far."
        self.reported_tokens = 0
        "Tokens that the server reports at the end; 0 if it does not."
        self.error = ""
        "Code of the error that ended the stream; empty if there was none."

    @property
    def tokens(self) -> int:
        """Number of tokens as the server reports it, or else the number of chunks with text."""
        return self.reported_tokens or self.text_chunks

    def push(self, data: str) -> None:
        """Adds the data of one server-sent event. Raises msgspec.DecodeError."""
        if data == "[DONE]":
            return
        chunk = msgspec.json.decode(data, type=_Chunk)
        if chunk.error:
            self.error = str(chunk.error.get("code") or "error")
        if chunk.usage:
            self.reported_tokens = chunk.usage.completion_tokens
        self.text_chunks += sum(bool(choice.delta.content) for choice in chunk.choices)


class PlayedSound:
    """Follows a player that starts with the first sound, and waits wherever it has played all."""

    def __init__(self) -> None:
        self.first_s: float | None = None
        "Time of the first sound; None before it."
        self.gap_s = 0.0
        "Time for which the player had to wait so far, all its pauses together."
        self._bytes = 0

    @property
    def length_s(self) -> float:
        """Length of the sound so far."""
        return self._bytes / _BYTES_PER_S

    def push(self, data: bytes, at_s: float) -> None:
        """Takes the next bytes of the sound, and the time at which they came."""
        if not data:
            return
        if self.first_s is None:
            self.first_s = at_s
        self.gap_s = max(self.gap_s, at_s - self.first_s - self.length_s)
        self._bytes += len(data)


class _Delta(Struct, frozen=True):
    content: str | None = None


class _Choice(Struct, frozen=True):
    delta: _Delta = _Delta()


class _Usage(Struct, frozen=True):
    completion_tokens: int = 0


class _Chunk(Struct, frozen=True):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Mapping[str, Any] | None = None
