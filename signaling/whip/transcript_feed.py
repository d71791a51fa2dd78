"""Transcript of a publication for several readers. Each has a limited queue; late ones catch up."""

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
from msgspec import Struct

from core.access.limits import CapacityLimit
from core.conversation.events import (
    HypothesisChanged,
    SessionEvent,
    TranscriptionCompleted,
    TranscriptionFailed,
)
from core.queues import Outbox

MAX_UNREAD = 256
"Limit of a reader's unread events: half a minute of the fastest hypotheses."

MAX_READERS = 8

MAX_KEPT = 100
"Number of finished utterances kept for readers that come late or return: some minutes of speech."

RETRY_AFTER_S = 5
"`Retry-After` for a refused reader, in seconds."


class FeedEvent(Struct, frozen=True, tag_field="type"):
    """One event, on the data channel and in the stream."""


class FeedHypothesis(FeedEvent, frozen=True, tag="hypothesis"):
    """Words while they are spoken. `stable` only grows."""

    item_id: str
    stable: str
    unstable: str


class FinalTranscript(FeedEvent, frozen=True, tag="completed"):
    """Final transcript of an utterance; empty if it was noise."""

    item_id: str
    transcript: str
    language: str
    audio_s: float


class TranscriptFailure(FeedEvent, frozen=True, tag="failed"):
    """Transcription of an utterance failed."""

    item_id: str
    code: str
    message: str


class FeedEnd(FeedEvent, frozen=True, tag="closed"):
    """Last event: the reason for the end of the publication."""

    reason: str


@dataclass(frozen=True, slots=True)
class FeedEntry:
    """One event of the feed, encoded as JSON. `is_kept`: late readers get it too."""

    number: int
    kind: str
    text: str
    is_kept: bool


def event_of(session_event: SessionEvent) -> FeedEvent | None:
    """Returns the readers' event for a session event; None if they get none."""
    match session_event:
        case HypothesisChanged():
            return FeedHypothesis(
                session_event.item_id, session_event.stable, session_event.unstable
            )
        case TranscriptionCompleted():
            return FinalTranscript(
                session_event.item_id,
                session_event.transcript,
                session_event.language,
                session_event.audio_s,
            )
        case TranscriptionFailed():
            return TranscriptFailure(
                session_event.item_id, session_event.code, session_event.message
            )
        case _:
            return None


class TranscriptFeed:
    """Feed of one publication, which owns it. `put` never blocks."""

    def __init__(self) -> None:
        self._kept_entries: deque[FeedEntry] = deque(maxlen=MAX_KEPT)
        self._readers: set[Outbox[FeedEntry]] = set()
        self._places = CapacityLimit(
            MAX_READERS,
            "{limit} clients already read this publication, the limit",
            retry_after_s=RETRY_AFTER_S,
            code="too_many_readers",
        )
        self._count = 0
        self._is_closed = False

    @property
    def kept_entries(self) -> tuple[FeedEntry, ...]:
        """Finished utterances for readers that come late, the oldest first."""
        return tuple(self._kept_entries)

    def put(self, event: FeedEvent) -> FeedEntry:
        """Numbers an event, keeps it if it is final, and sends it to all readers."""
        self._count += 1
        kind = str(event.__struct_config__.tag)
        text = msgspec.json.encode(event).decode()
        entry = FeedEntry(self._count, kind, text, not isinstance(event, FeedHypothesis))
        if entry.is_kept:
            self._kept_entries.append(entry)
        for reader in self._readers:
            reader.put(entry)
        return entry

    @contextmanager
    def open_reader(self, last_number: int = 0) -> Iterator[Outbox[FeedEntry]]:
        """Yields a queue with the kept events after number `last_number`, then all new ones.

        Raises OverloadedError too_many_readers.
        """
        with self._places.take():
            reader: Outbox[FeedEntry] = Outbox(MAX_UNREAD)
            for entry in self._kept_entries:
                if entry.number > last_number:
                    reader.put(entry)
            if self._is_closed:
                reader.close()
            self._readers.add(reader)
            try:
                yield reader
            finally:
                self._readers.discard(reader)

    def close(self, reason: str) -> None:
        """Sends the last event and ends all queues."""
        if self._is_closed:
            return
        self._is_closed = True
        self.put(FeedEnd(reason))
        for reader in self._readers:
            reader.close()
