"""The feed of a publication is bounded, and late readers catch up."""

import asyncio
import json
from contextlib import ExitStack

import pytest

from core.conversation.events import (
    HypothesisChanged,
    InputCleared,
    SpeechStarted,
    TranscriptionCompleted,
    TranscriptionFailed,
)
from core.errors import OverloadedError
from core.queues import Outbox
from signaling.whip.sse import last_event_id, server_sent
from signaling.whip.transcript_feed import (
    MAX_KEPT,
    MAX_READERS,
    MAX_UNREAD,
    FeedEntry,
    FeedHypothesis,
    FinalTranscript,
    TranscriptFeed,
    event_of,
)

HYPOTHESIS = FeedHypothesis("item_1", "turn", "on")


def done(text: str) -> FinalTranscript:
    return FinalTranscript("item_1", text, "en", 1.5)


def read_all(reader: Outbox[FeedEntry]) -> list[FeedEntry]:
    async def main() -> list[FeedEntry]:
        return [sent async for sent in reader]

    return asyncio.run(main())


def test_the_events_of_the_feed() -> None:
    told = [
        event_of(HypothesisChanged("i", "turn", "on", 400)),
        event_of(TranscriptionCompleted("i", "turn on", 1.5, "en")),
        event_of(TranscriptionFailed("i", "engine_failed", "no")),
        event_of(SpeechStarted("i", 0)),
        event_of(InputCleared()),
    ]
    feed = TranscriptFeed()
    assert [json.loads(feed.put(event).text) for event in told if event is not None] == [
        {"type": "hypothesis", "item_id": "i", "stable": "turn", "unstable": "on"},
        {
            "type": "completed",
            "item_id": "i",
            "transcript": "turn on",
            "language": "en",
            "audio_s": 1.5,
        },
        {"type": "failed", "item_id": "i", "code": "engine_failed", "message": "no"},
    ]
    assert told[3:] == [None, None]


def test_a_late_reader_gets_the_final_transcripts() -> None:
    feed = TranscriptFeed()
    for event in (HYPOTHESIS, done("one"), HYPOTHESIS, done("two")):
        feed.put(event)
    with feed.open_reader() as all_of_it, feed.open_reader(last_number=2) as the_rest:
        feed.put(HYPOTHESIS)
        feed.close("closed")
        assert [sent.number for sent in read_all(all_of_it)] == [2, 4, 5, 6]
        assert [sent.kind for sent in read_all(the_rest)] == ["completed", "hypothesis", "closed"]
    with feed.open_reader(last_number=4) as too_late:
        assert [sent.kind for sent in read_all(too_late)] == ["closed"]


def test_the_number_of_kept_transcripts_is_limited() -> None:
    feed = TranscriptFeed()
    for number in range(3 * MAX_KEPT):
        feed.put(done(str(number)))
    assert len(feed.kept_entries) == MAX_KEPT
    assert feed.kept_entries[-1].number == 3 * MAX_KEPT


def test_a_slow_reader_is_disconnected_alone() -> None:
    feed = TranscriptFeed()
    with feed.open_reader() as slow, feed.open_reader() as quick:
        for _ in range(MAX_UNREAD):
            feed.put(HYPOTHESIS)
        assert len(quick._items) == MAX_UNREAD
        quick._items.clear()
        feed.put(HYPOTHESIS)
        assert (slow.overflowed, quick.overflowed) == (True, False)


def test_readers_are_limited_and_free_their_places() -> None:
    feed = TranscriptFeed()
    with ExitStack() as stack:
        for _ in range(MAX_READERS):
            stack.enter_context(feed.open_reader())
        with pytest.raises(OverloadedError) as refused, feed.open_reader():
            pass
        assert refused.value.code == "too_many_readers"
    with feed.open_reader():
        pass


def test_only_the_first_reason_for_the_end_is_kept() -> None:
    feed = TranscriptFeed()
    feed.close("idle")
    feed.close("closed")
    assert [json.loads(sent.text)["reason"] for sent in feed.kept_entries] == ["idle"]


def test_an_event_on_the_wire() -> None:
    sent = TranscriptFeed().put(done("a\nb"))
    assert server_sent(sent) == (
        b"event: completed\nid: 1\n"
        b'data: {"type":"completed","item_id":"item_1","transcript":"a\\nb","language":"en",'
        b'"audio_s":1.5}\n\n'
    )


@pytest.mark.parametrize(
    ("header", "number"),
    [("7", 7), ("", 0), ("-1", 0), ("x", 0), ("٧", 0), ("9" * 5000, 0), ("1.5", 0)],
)
def test_last_event_id_is_a_number_or_zero(header: str, number: int) -> None:
    assert last_event_id({"Last-Event-ID": header}) == number
    assert last_event_id({}) == 0
