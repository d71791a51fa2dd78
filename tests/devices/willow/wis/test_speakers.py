"""The six speakers of WIS are six different voices, whatever engines there are."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from devices.willow.wis.speakers import SPEAKERS, speaker_voice
from engines.base import Tts, TtsInfo
from engines.tts.espeak import Settings, create
from pipeline.speech.voices import choose_voice
from tests.devices.willow.wis.servers import Scene, Server, against
from tests.pipeline.fakes import ToneTts

ROOT = Path(__file__).parents[4]


def named(name: str, *voices: str) -> Tts:
    tts = ToneTts()
    tts.info = TtsInfo(name, 24_000, {"en": voices})
    return tts


ESPEAK = named("espeak", "en-us", "en-gb", "en-gb-scotland")
INSTALLED: Mapping[str, Mapping[str, Tts]] = {
    "espeak": {"default": ESPEAK, "espeak": ESPEAK},
    "one hibari": {"hibari": named("hibari", "heart"), "espeak": ESPEAK},
    "all of hibari": {
        "hibari": named("hibari", "heart", "emma", "fable", "fenrir", "kore"),
        "espeak": ESPEAK,
    },
    "kokoro": {
        "kokoro": named(
            "kokoro", "af_heart", "af_bella", "am_adam", "am_michael", "bm_george", "bm_lewis"
        ),
        "espeak": ESPEAK,
    },
}


@pytest.mark.parametrize("installed", INSTALLED)
def test_the_six_speakers_are_six_voices(installed: str) -> None:
    engines = INSTALLED[installed]
    assert sorted(SPEAKERS) == ["AWB", "BDL", "CLB", "KSP", "RMS", "SLT"]
    chosen = {
        speaker: choose_voice(engines, "en", speaker_voice(engines, speaker))
        for speaker in SPEAKERS
    }
    assert len({(choice.engine, choice.voice) for choice in chosen.values()}) == 6
    assert chosen["CLB"] == choose_voice(engines, "en")


def test_the_documentation_has_the_table() -> None:
    text = (ROOT / "docs" / "willow.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([A-Z]{3})`[^|]* \| ([^|]*) \|$", text, re.MULTILINE)
    assert {name: tuple(re.findall(r"`([^`]*)`", voices)) for name, voices in rows} == SPEAKERS


def test_another_language_keeps_its_own_voice() -> None:
    engines = {"espeak": ESPEAK, "tone": ToneTts()}
    assert choose_voice(engines, "de", speaker_voice(engines, "SLT")).voice == "tief"


@pytest.mark.parametrize("name", ["slt", "Slt"])
def test_the_case_of_a_speaker_does_not_count(name: str) -> None:
    assert speaker_voice({"espeak": ESPEAK}, name) == "espeak/en-us+f3"


@pytest.mark.live
def test_the_six_speakers_sound_different() -> None:
    espeak: Any = create(Settings())

    async def act(server: Server) -> None:
        sounds = {}
        for speaker in SPEAKERS:
            query = {"text": "Good morning.", "speaker": speaker}
            answer = await server.client.get("/api/tts", params=query)
            assert answer.status == 200
            sounds[speaker] = await answer.read()
        assert len(set(sounds.values())) == 6

    against(act, Scene(tts=espeak, voices={"espeak": espeak}), is_virtual=False)
