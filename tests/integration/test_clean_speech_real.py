"""Counts of words that the no-speech filter takes, with official Whisper weights.

`pytest -m real -s tests/integration/test_clean_speech_real.py` prints the figures.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import soxr

from bench.measurements.material.changed_voices import make_whispered
from bench.measurements.noise import UnsharedRecogniser, hear_live, recordings_of_noise
from bench.tools.word_errors import spoken_words, word_errors
from core.audio import ASR_RATE_HZ, Pcm
from engines.base import AsrModel, AsrOptions, VadEngine
from engines.registry import load
from media.files.decode import decode_file
from pipeline.services import EngineSet
from pipeline.shared.settings import DEFAULT
from pipeline.transcription.no_speech import NoSpeechMode
from pipeline.transcription.recording import Transcriber
from tests.real_models import spoken_by_hibari, tiny_en
from tests.shared import shared_data

pytestmark = pytest.mark.real

PHRASES = (
    "Hello.",
    "Hi, how are you?",
    "Can you help me with something?",
    "Thank you very much.",
    "What is the status of my order?",
    "Yes.",
)
"Lost once, with clean voices, for no reason that a listener could hear."

PEOPLE = (
    "speech/alphanumeric/three_evmaki.wav",
    "speech/alphanumeric/seven_evmaki.wav",
    "speech/alphanumeric/three_petewarden.wav",
    "speech/alphanumeric/seven_petewarden.wav",
    "speech/en/LJ001-0002.flac",
    "wakeword-clips/hey_jarvis_1.wav",
    "wakeword-clips/hey_mycroft_3.wav",
    "wakeword-clips/okay_nabu_2.wav",
    "real-commands/order_004.flac",
    "real-commands/order_010.flac",
)

LONGEST = 29 * ASR_RATE_HZ
"Of a recording of noise: one window of Whisper, so that its own rule sees the same samples."


@dataclass(frozen=True, slots=True)
class Ears:
    model: AsrModel
    vad: VadEngine

    def of_file(self, pcm: Pcm, mode: NoSpeechMode = "normal") -> str:
        """Returns the transcript of an uploaded file."""

        async def transcribed() -> str:
            asr = {DEFAULT: UnsharedRecogniser(self.model)}
            engines = EngineSet(self.vad, asr, {}, {}, no_speech=mode)
            async with Transcriber(engines).open(DEFAULT, AsrOptions("en")) as recording:
                await recording.push(pcm)
                recording.end()
                return (await recording.transcript()).text

        return asyncio.run(transcribed())

    def live(self, pcm: Pcm) -> str:
        """Returns the transcript of a session with `server_vad`."""
        said = asyncio.run(hear_live(self.model, self.vad, "clip", pcm))
        return " ".join(one.filtered for one in said if one.filtered)


@pytest.fixture(scope="module")
def ears() -> Iterator[Ears]:
    model = load(
        "asr", "faster_whisper", {"model": str(tiny_en()), "device": "cpu", "cpu_threads": 1}
    )
    assert model.info.tells_noise
    yield Ears(model, load("vad", "gated", {}))
    model.close()


def at_8_khz(pcm: Pcm) -> Pcm:
    """Returns the clip as a telephone line transmits it."""
    narrow = soxr.resample(pcm, ASR_RATE_HZ, 8000)
    return np.asarray(soxr.resample(narrow, 8000, ASR_RATE_HZ), np.int16)


@pytest.fixture(scope="module")
def phrases() -> dict[str, Pcm]:
    return dict(zip(PHRASES, spoken_by_hibari(PHRASES), strict=True))


def test_no_clean_short_phrase_is_lost_in_an_upload_or_a_session(
    ears: Ears, phrases: dict[str, Pcm]
) -> None:
    people = {name: decode_file(shared_data(*name.split("/"))) for name in PEOPLE}
    clips = phrases | people
    narrow = {f"{name} at 8 kHz": at_8_khz(pcm) for name, pcm in clips.items()}
    heard = {name: (ears.of_file(pcm), ears.live(pcm)) for name, pcm in (clips | narrow).items()}
    assert [name for name, texts in heard.items() if not all(texts)] == []
    print(f"\n{len(heard)} short clips of four voices or more, upload and live: none lost")
    for text in PHRASES:
        for name in (text, f"{text} at 8 kHz"):
            uploaded, live = (spoken_words(one) for one in heard[name])
            assert uploaded == live == spoken_words(text), name


def test_the_filter_removes_no_words_of_whispered_or_quiet_speech(
    ears: Ears, phrases: dict[str, Pcm]
) -> None:
    for kind, changed in {"whispered": make_whispered, "at -55 dBFS": quiet}.items():
        errors = {"normal": 0, "off": 0}
        for text, pcm in phrases.items():
            for each in (changed(pcm), at_8_khz(changed(pcm))):
                for mode in ("normal", "off"):
                    said = spoken_words(ears.of_file(each, mode))
                    errors[mode] += word_errors(spoken_words(text), said)
        words = 2 * sum(len(spoken_words(text)) for text in phrases)
        print(f"\n{kind}: wrong of {words} words: {errors}")
        assert errors["normal"] <= errors["off"] < words / 2


def test_noise_is_transcribed_no_more_often_than_by_whispers_own_rule(ears: Ears) -> None:
    pieces = list(noises(shared_data()))
    by_rule = own_rule(pieces)
    uploaded = {name for name, pcm in pieces if ears.of_file(pcm)}
    live = {name for name, pcm in pieces if ears.live(pcm)}
    print(
        f"\nof {len(pieces)} pieces of noise and music answered: {len(by_rule)} by Whisper's rule,"
        f" {len(uploaded)} of uploads {sorted(uploaded)}, {len(live)} live {sorted(live)}"
    )
    assert len(pieces) > 12
    assert uploaded <= by_rule
    assert len(live) <= len(by_rule)


def noises(data: Path) -> Iterator[tuple[str, Pcm]]:
    for path in recordings_of_noise(data):
        yield path.name, decode_file(path)[:LONGEST]


def own_rule(pieces: list[tuple[str, Pcm]]) -> set[str]:
    """Returns the transcript of faster-whisper with its own thresholds, without our filter."""
    from faster_whisper import WhisperModel

    model = WhisperModel(str(tiny_en()), "cpu", compute_type="int8", cpu_threads=1)
    answered = set[str]()
    for name, pcm in pieces:
        segments, _ = model.transcribe(
            pcm.astype(np.float32) / 32_768, beam_size=1, temperature=0, language="en"
        )
        if any(segment.text.strip() for segment in segments):
            answered.add(name)
    return answered


def quiet(pcm: Pcm) -> Pcm:
    """Returns the clip with peaks at -55 dBFS, in the noise of a good microphone."""
    hiss = np.random.default_rng(1).normal(0, 1, len(pcm))
    scale = 32_768 * 10 ** (-55 / 20) / np.abs(pcm).max()
    return np.asarray(np.round(pcm * scale + hiss), np.int16)
