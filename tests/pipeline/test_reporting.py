"""Words reach the log where they are asked for, and no other logger ever."""

import logging

import numpy as np
import pytest

from core.events import OutputAudio, OutputText
from pipeline.playout import MAX_PIECE_SAMPLES
from pipeline.reporting import joined
from pipeline.session import Session
from tests.pipeline.fakes import World, speak
from tests.pipeline.test_session import SILENCE, one_turn, run_session


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_what_is_heard_and_said_is_logged_only_when_asked_for(
    caplog: pytest.LogCaptureFixture, is_asked_for: bool
) -> None:
    world = World(logs_words=is_asked_for)

    async def scenario(session: Session) -> None:
        await one_turn(session)
        world.tts.fails = True
        await one_turn(session)
        world.asr.broken = True
        await speak(session, (1000, 600), (SILENCE, 1000))

    with caplog.at_level(logging.DEBUG):
        run_session(world, scenario)
    assert len(caplog.records) > 3
    told = [record for record in caplog.records if "one" in record.getMessage().split()]
    assert {record.name for record in told} == ({"transcripts"} if is_asked_for else set())
    said = [record.getMessage().split(": ")[1].strip() for record in told]
    assert said == ["one two", "you said one two."] * 2 * is_asked_for
    assert all(record.levelno == logging.INFO for record in told)


def test_sound_that_waits_goes_as_one_event_and_other_events_stay_where_they_are() -> None:
    def sound(item_id: str, *samples: int) -> OutputAudio:
        return OutputAudio("resp", item_id, 0, np.array(samples, np.int16))

    both = joined(sound("a", 1, 2), sound("a", 3))
    assert both is not None
    assert (both.item_id, both.pcm.tolist()) == ("a", [1, 2, 3])
    assert joined(sound("a", 1), sound("b", 2)) is None
    words = OutputText("resp", "a", 0, "text", "one")
    assert joined(words, sound("a", 1)) is None
    assert joined(sound("a", 1), words) is None
    much = OutputAudio("resp", "a", 0, np.zeros(MAX_PIECE_SAMPLES, np.int16))
    assert joined(much, sound("a", 1)) is None
