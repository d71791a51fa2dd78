"""Conversations of a simulated satellite that knows only its protocol."""

import asyncio

import numpy as np
import pytest

from bench.client.satellite import RAW, Satellite
from tests.devices.esphome.servers import ONE, TWO, WHOLE_TURN, Scene, against, decoded
from tests.pipeline.fakes import EchoLlm, ToneTts

pytestmark = pytest.mark.live


def test_a_whole_turn() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        assert await satellite.turn(ONE, TWO) == WHOLE_TURN
        assert satellite.data("STT_END") == {"text": "one two"}
        assert satellite.data("TTS_START") == {"text": "you said one two."}

    against(act)


def test_the_answer_is_fetched_while_it_is_made() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        await satellite.turn(ONE)
        await satellite.until(lambda: satellite.fetched)
        kind, data = satellite.fetched[0]
        assert kind == "audio/flac"
        pcm = decoded(data)
        assert 290 <= 1000 * np.count_nonzero(np.abs(pcm) > 1000) / 48_000 <= 320
        await scene.idle()
        assert scene.turns == 1

    against(act)


def test_a_device_that_names_no_format_gets_wav() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        await satellite.turn(ONE)
        await satellite.until(lambda: satellite.fetched)
        kind, data = satellite.fetched[0]
        assert (kind, data[:4]) == ("audio/wav", b"RIFF")

    against(act, Scene(Satellite(formats=())))


def test_a_question_opens_the_microphone_again() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        await satellite.turn(ONE)
        assert satellite.data("INTENT_END")["continue_conversation"] == "1"
        await scene.idle()
        await satellite.turn(TWO)
        assert satellite.data("STT_END") == {"text": "two"}
        assert len(scene.llm.asked[-1]) > len(scene.llm.asked[0])  # it remembers

    against(act, Scene(llm=EchoLlm(0.001, ending="?")))


def test_a_tool_call_precedes_the_answer() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        assert await satellite.turn(4000) == WHOLE_TURN
        assert satellite.data("TTS_START")["text"]

    against(act)


@pytest.mark.parametrize("is_early", [True, False])
def test_the_user_stops_the_run(is_early: bool) -> None:
    """While it listens, or while the answer is being made: it is over at once, and so is the
    session."""

    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        satellite.start()
        await satellite.until(satellite.names)
        await satellite.say((ONE, 300), (0, 100 if is_early else 3000))
        if not is_early:
            await satellite.until(lambda: "INTENT_START" in satellite.names())
        satellite.stop()
        await satellite.until(lambda: "RUN_END" in satellite.names())
        await scene.idle()
        assert await satellite.turn(ONE) == WHOLE_TURN

    against(act, Scene(llm=EchoLlm(0.5)))


def test_a_new_start_replaces_the_run_without_ending_the_new_one() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        satellite.start()
        await satellite.until(satellite.names)
        await satellite.say((ONE, 300), (0, 100))
        assert await satellite.turn(TWO) == WHOLE_TURN
        assert satellite.data("STT_END") == {"text": "two"}

    against(act)


def test_an_answer_that_is_stopped_is_remembered_as_far_as_it_was_played() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        await satellite.turn(ONE)
        await scene.idle()
        await satellite.turn(TWO)
        spoken = [one.text for one in scene.llm.asked[-1] if one.role == "assistant"]
        assert all("one." not in text for text in spoken)

    # it plays for 1 s of an answer of 4 s
    against(act, Scene(Satellite(plays_s=1.0), tts=ToneTts(4000)))


def test_a_raw_speaker_is_sent_the_sound_at_its_pace() -> None:
    async def act(scene: Scene, satellite: Satellite) -> None:
        await satellite.subscribed()
        names = await satellite.turn(ONE)
        assert names[-6:] == [
            "INTENT_END",
            "TTS_START",
            "TTS_END",
            "TTS_STREAM_START",
            "TTS_STREAM_END",
            "RUN_END",
        ]
        assert len(satellite.raw_sound) == 2 * 16_000
        assert satellite.fetched == []
        assert satellite.first_sound_at is not None
        lasted_s = asyncio.get_running_loop().time() - satellite.first_sound_at
        assert 0.8 <= lasted_s <= 1.0

    against(act, Scene(Satellite(features=RAW), tts=ToneTts(1000)))
