"""What was said, for everybody who reads it: each reader has a bound, and late ones catch up."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from core.errors import Overloaded
from core.events import HypothesisChanged, SessionEvent, Transcribed, TranscriptionFailed
from core.queues import Outbox

MAX_UNREAD = 256
"Half a minute of the fastest hypotheses."

MAX_READERS = 8

MAX_KEPT = 100
"Finished utterances that a reader who comes late, or again, still gets: some minutes of speech."

RETRY_AFTER_S = 5


class Event(Struct, frozen=True, tag_field="type"):
    """One event, on the data channel and in the stream."""


class Hypothesis(Event, frozen=True, tag="hypothesis"):
    """Words while they are spoken; `stable` only grows."""

    item_id: str
    stable: str
    unstable: str


class Completed(Event, frozen=True, tag="completed"):
    """An utterance; empty when it was noise."""

    item_id: str
    transcript: str
    language: str
    audio_s: float


class Failed(Event, frozen=True, tag="failed"):
    item_id: str
    code: str
    message: str


class Closed(Event, frozen=True, tag="closed"):
    """The last one: why the publication ended."""

    reason: str


@dataclass(frozen=True, slots=True)
class Sent:
    number: int
    kind: str
    text: str
    is_kept: bool


def event_of(happened: SessionEvent) -> Event | None:
    """What readers are told of it."""
    match happened:
        case HypothesisChanged():
            return Hypothesis(happened.item_id, happened.stable, happened.unstable)
        case Transcribed():
            return Completed(
                happened.item_id, happened.transcript, happened.language, happened.audio_s
            )
        case TranscriptionFailed():
            return Failed(happened.item_id, happened.code, happened.message)
        case _:
            return None


class Feed:
    """Owner: the publication. `put` never blocks."""

    def __init__(self) -> None:
        self._kept: deque[Sent] = deque(maxlen=MAX_KEPT)
        self._readers: set[Outbox[Sent]] = set()
        self._count = 0
        self._is_closed = False

    @property
    def kept(self) -> tuple[Sent, ...]:
        return tuple(self._kept)

    def put(self, event: Event) -> Sent:
        self._count += 1
        kind = str(event.__struct_config__.tag)
        text = msgspec.json.encode(event).decode()
        sent = Sent(self._count, kind, text, not isinstance(event, Hypothesis))
        if sent.is_kept:
            self._kept.append(sent)
        for reader in self._readers:
            reader.put(sent)
        return sent

    @contextmanager
    def reading(self, after: int = 0) -> Iterator[Outbox[Sent]]:
        """What is kept and newer than number `after`, then all that comes; ends with the feed.

        Raises Overloaded too_many_readers.
        """
        if len(self._readers) >= MAX_READERS:
            raise Overloaded(
                f"{MAX_READERS} read this publication already",
                retry_after_s=RETRY_AFTER_S,
                code="too_many_readers",
            )
        reader: Outbox[Sent] = Outbox(MAX_UNREAD)
        for sent in self._kept:
            if sent.number > after:
                reader.put(sent)
        if self._is_closed:
            reader.close()
        self._readers.add(reader)
        try:
            yield reader
        finally:
            self._readers.discard(reader)

    def close(self, reason: str) -> None:
        """The last event, then the end of every reader."""
        if self._is_closed:
            return
        self._is_closed = True
        self.put(Closed(reason))
        for reader in self._readers:
            reader.close()
