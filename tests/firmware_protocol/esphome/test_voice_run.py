"""The events of a run: their order, and that every run ends."""

from collections.abc import Callable, Sequence
from itertools import product

import pytest

from firmware_protocol.esphome.voice_run import MAX_TEXT_CHARS, NO_TEXT, RunEvent, VoiceRun

URL = "http://192.0.2.1:10380/esphome/sounds/abc.flac"

Step = Callable[[VoiceRun], list[RunEvent]]
STEPS: dict[str, Step] = {
    "start": VoiceRun.start,
    "speech": VoiceRun.speech_started,
    "silence": VoiceRun.speech_ended,
    "words": lambda run: run.transcript("what time is it"),
    "sound": lambda run: run.sound_ready("It is"),
    "finish": lambda run: run.finish("It is noon?", continues=True),
}
ORDER = [
    "RUN_START",
    "STT_START",
    "STT_VAD_START",
    "STT_VAD_END",
    "STT_END",
    "INTENT_START",
    "INTENT_PROGRESS",
    "INTENT_END",
    "TTS_START",
    "TTS_END",
    "RUN_END",
]


def events(run: VoiceRun, *steps: str) -> list[RunEvent]:
    return [event for step in steps for event in STEPS[step](run)]


def names(found: Sequence[RunEvent]) -> list[str]:
    return [one.event.name for one in found]


def run_of(*, has_raw_speaker: bool = False) -> VoiceRun:
    return VoiceRun(URL, "dev_1", has_raw_speaker=has_raw_speaker)


def test_a_whole_run() -> None:
    found = events(run_of(), *STEPS)
    assert names(found) == ORDER
    data = {one.event.name: one.data for one in found if one.data}
    assert data == {
        "RUN_START": {"url": URL},
        "STT_END": {"text": "what time is it"},
        "INTENT_PROGRESS": {"tts_start_streaming": "1"},
        "INTENT_END": {"conversation_id": "dev_1", "continue_conversation": "1"},
        "TTS_START": {"text": "It is noon?"},
        "TTS_END": {"url": URL},
    }


def test_a_raw_speaker_gets_the_answer_before_its_sound() -> None:
    found = events(run_of(has_raw_speaker=True), *STEPS)
    assert names(found)[6:] == [
        "INTENT_END",
        "TTS_START",
        "TTS_END",
        "TTS_STREAM_START",
        "TTS_STREAM_END",
        "RUN_END",
    ]


def test_an_answer_without_sound_has_no_url() -> None:
    found = events(run_of(), "start", "words", "finish")
    assert names(found)[-2:] == ["INTENT_END", "RUN_END"]
    assert found[-2].data["continue_conversation"] == "0"


@pytest.mark.parametrize("text", ["", "  "])
def test_no_words_end_the_run_without_an_error_light(text: str) -> None:
    run = run_of()
    found = [*run.start(), *run.transcript(text)]
    assert names(found) == ["RUN_START", "STT_START", "ERROR", "RUN_END"]
    assert found[2].data["code"] == NO_TEXT


def test_a_long_text_is_cut() -> None:
    run = run_of()
    found = [
        *run.transcript("a" * 900),
        *run.sound_ready(""),
        *run.finish("b" * 900, continues=False),
    ]
    assert {len(text) for one in found for text in one.data.values() if len(text) > 99} == {
        MAX_TEXT_CHARS
    }


def test_every_order_of_calls_gives_events_in_order_and_one_end() -> None:
    """Also with steps left out, repeated or late."""
    for steps in product(STEPS, repeat=4):
        run = run_of()
        found = names([*events(run, *steps), *run.fail("broken", "It broke")])
        known = [name for name in found if name != "ERROR"]
        assert known == sorted(known, key=ORDER.index), steps
        assert found.count("RUN_END") == 1, steps
        assert events(run, *STEPS) == []
        assert run.is_over


def test_an_abandoned_run_sends_nothing_more() -> None:
    run = run_of()
    run.start()
    run.abandon()
    assert events(run, *STEPS) == []
    assert run.fail("broken", "It broke") == []


def test_a_run_that_lost_its_wake_word_ends_without_an_error() -> None:
    run = VoiceRun(URL, "dev_1", has_raw_speaker=False)
    assert run.takes_audio
    assert names(run.lose()) == ["RUN_END"]
    assert (run.is_over, run.takes_audio, run.lose(), run.start()) == (True, False, [], [])
