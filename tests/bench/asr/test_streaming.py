"""Transcript of a streamed recording, for events in any order."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from bench.asr.streaming import TRANSCRIPTION, StreamedTranscript, StreamingClient
from bench.client.realtime import ReceivedEvent, background
from core.audio import Pcm
from tests.loop import run_virtual

RATE_HZ = 24_000
TEXTS = {"u1": "one two three", "u2": "four five", "silent": ""}


def started(item: str) -> dict[str, Any]:
    return {"type": "input_audio_buffer.speech_started", "item_id": item, "audio_start_ms": 1}


def stopped(item: str) -> dict[str, Any]:
    return {"type": "input_audio_buffer.speech_stopped", "item_id": item, "audio_end_ms": 900}


def committed(item: str) -> dict[str, Any]:
    return {"type": "input_audio_buffer.committed", "item_id": item}


def completed(item: str) -> dict[str, Any]:
    return {
        "type": f"{TRANSCRIPTION}.completed",
        "item_id": item,
        "transcript": TEXTS.get(item, item),
    }


class Client:
    """A connection and its microphone: while a recording is sent, its events arrive."""

    def __init__(self, *recordings: list[dict[str, Any]]) -> None:
        self.end_reason = ""
        self._recordings = iter(recordings)
        self._arrived: asyncio.Queue[ReceivedEvent] = asyncio.Queue()

    @property
    def microphone(self) -> "Client":
        return self

    async def say(self, _: Pcm) -> int:
        for event in next(self._recordings):
            self._arrived.put_nowait(ReceivedEvent(event, asyncio.get_running_loop().time()))
            await asyncio.sleep(0.1)
        return 0

    def spoken_at(self, _: int) -> float:
        return asyncio.get_running_loop().time()

    async def events(self) -> AsyncIterator[ReceivedEvent]:
        while True:
            yield await self._arrived.get()


def orders() -> Iterator[list[dict[str, Any]]]:
    """Yields every order in which the events of two utterances may arrive. Each utterance keeps its
    own order, and the second one begins after the first one stopped."""
    first = [committed("u1"), completed("u1")]
    second = [started("u2"), stopped("u2"), committed("u2"), completed("u2")]
    for places in combinations(range(6), 2):
        mixed, left = iter(second), iter(first)
        yield [
            started("u1"),
            stopped("u1"),
            *(next(left if place in places else mixed) for place in range(6)),
        ]


def transcripts(*recordings: list[dict[str, Any]]) -> list[str]:
    """Returns the texts of recordings that are sent one after the other."""
    return [answer.text for answer in answers(*recordings)]


def answers(*recordings: list[dict[str, Any]]) -> list[StreamedTranscript]:
    """Returns the results of recordings that are sent one after the other."""
    found: list[StreamedTranscript] = []

    async def main() -> None:
        speaker = StreamingClient(Client(*recordings), timeout_s=1)  # type: ignore[arg-type]
        async with background(speaker.read()):
            pcm, span = np.ones(RATE_HZ, np.int16), (0, RATE_HZ)
            found.extend([await speaker.say(pcm, span) for _ in recordings])

    run_virtual(main())
    return found


@pytest.mark.parametrize("events", list(orders()))
def test_both_utterances_are_kept_in_any_order_of_events(events: list[dict[str, Any]]) -> None:
    assert transcripts(events) == ["one two three four five"]


def test_a_text_counts_if_it_arrives_before_its_item_is_committed() -> None:
    early = [started("u1"), stopped("u1"), completed("u1"), committed("u1")]
    assert transcripts(early) == ["one two three"]


def test_texts_are_in_the_order_of_the_speech() -> None:
    items = ("u1", "u2")
    events = [*map(started, items), *map(committed, items), completed("u2"), completed("u1")]
    assert transcripts([*events[:1], stopped("u1"), *events[1:]]) == ["one two three four five"]


def test_an_item_repeated_by_a_later_one_is_left_out() -> None:
    deleted = {"type": "conversation.item.deleted", "item_id": "u1"}
    again = [started("whole"), deleted, committed("whole"), completed("whole")]
    assert transcripts([started("u1"), committed("u1"), *again]) == ["whole"]


def test_a_late_text_is_not_part_of_the_next_recording() -> None:
    begun = [started("u1"), stopped("u1"), committed("u1")]
    next_one = [started("u2"), completed("u1"), stopped("u2"), committed("u2"), completed("u2")]
    assert transcripts(begun, next_one) == ["", "four five"]


def test_finished_utterances_and_those_without_text_are_counted() -> None:
    def spoken(item: str) -> list[dict[str, Any]]:
        return [started(item), stopped(item), committed(item), completed(item)]

    deleted = {"type": "conversation.item.deleted", "item_id": "u2"}
    first, second = answers([*spoken("silent"), *spoken("u1")], [*spoken("u2"), deleted])
    assert (first.utterances, first.empty_utterances) == (2, 1)
    assert (second.utterances, second.empty_utterances) == (0, 0)
