"""PocketSphinx on recordings: people are transcribed; rooms, birds and machines give no text."""

from collections.abc import Iterator

import pytest

from bench.measurements.accuracy import commands, tool_specs, understood
from core.audio import Pcm
from engines.asr.pocketsphinx import Settings, create
from engines.asr.pocketsphinx.model import PocketSphinx
from engines.base import AsrItem
from engines.llm.intents import phrases
from media.files.decode import decode_file
from tests.shared import shared_data

pytestmark = pytest.mark.real

NOISE = [
    "noise/freesound_573577.wav",
    "noise/koala_noise.wav",
    "noise/rhasspy_beep_hi.wav",
    "noise/robin.ogg",
    "noise/room_tone_leopard_empty.wav",
    "noise/speechbrain_noise2.wav",
    "noise/speechbrain_noise3.wav",
    "vad/pattern_n.wav",
    "vad/pattern_zero.wav",
]


@pytest.fixture(scope="module")
def model() -> Iterator[PocketSphinx]:
    model = create(Settings(phrases=phrases("en", tool_specs(), 20_000)))
    yield model
    model.close()


def heard(model: PocketSphinx, pcm: Pcm) -> str:
    return model.decode([AsrItem("clip", pcm, is_final=True)])[0].text


def test_a_recorded_person_is_transcribed(model: PocketSphinx) -> None:
    pcm = decode_file(shared_data("speech", "en", "ha_turn_on_lamp.wav"))
    assert heard(model, pcm) == "turn on the living room lamp"


@pytest.mark.parametrize("name", NOISE)
def test_recorded_noise_gives_no_text(model: PocketSphinx, name: str) -> None:
    assert heard(model, decode_file(shared_data(*name.split("/")))) == ""


def test_recorded_commands_are_understood(model: PocketSphinx) -> None:
    data = shared_data("commands").parent
    clips = list(commands(model, data, is_opus=False))
    assert all(clip.is_same_whole for clip in clips)
    assert len(understood(clips, tool_specs())) / len(clips) >= 0.85
