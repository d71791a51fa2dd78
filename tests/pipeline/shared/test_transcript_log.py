"""Transcripts reach the log only if this is configured, and only through their own logger."""

import logging

import pytest

from pipeline.session.session import Session
from tests.pipeline.fakes import World, speak
from tests.pipeline.scenes import SILENCE, one_turn, run_session

pytestmark = pytest.mark.many


@pytest.mark.parametrize("is_asked_for", [False, True])
def test_transcripts_are_logged_only_if_configured(
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
