"""PocketSphinx transcribes spoken commands as they grow, and gives no text for silence or noise."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from msgspec import ValidationError

from core.audio import ASR_RATE_HZ, Pcm, silence
from core.errors import ConfigError
from engines.asr.pocketsphinx import Settings, create
from engines.asr.pocketsphinx.model import PocketSphinx
from engines.base import AsrItem, AsrOptions, AsrResult
from engines.registry import read_settings
from tests.speech import say

pytestmark = pytest.mark.live

PIECE = ASR_RATE_HZ // 4

SPOKEN = [
    ("turn on the kitchen lights", "en-us"),
    ("set a timer for ten seconds", "en-us"),
    ("what time is it", "en-gb"),
    ("add milk to the shopping list", "en-us+f3"),
    ("open the bedroom window", "en-gb"),
]


@pytest.fixture(scope="module")
def model() -> Iterator[PocketSphinx]:
    model = create(Settings(decoders=2))
    yield model
    model.close()


def clip(text: str, voice: str = "en-us") -> Pcm:
    return say(text, voice, lead_ms=300, tail_ms=300)


def whole(model: PocketSphinx, pcm: Pcm, name: str = "whole") -> AsrResult:
    (result,) = model.decode([AsrItem(name, pcm, is_final=True)])
    return result


def partials(model: PocketSphinx, pcm: Pcm, name: str = "live", piece: int = PIECE) -> list[str]:
    return [
        model.decode([AsrItem(name, pcm[:end], is_final=False)])[0].text
        for end in range(piece, len(pcm), piece)
    ]


@pytest.mark.parametrize(("text", "voice"), SPOKEN)
def test_a_spoken_command_is_transcribed(model: PocketSphinx, text: str, voice: str) -> None:
    result = whole(model, clip(text, voice))
    assert result.text == text
    assert result.language == "en"
    assert not result.is_rejected
    assert result.confidence > 0.7


def test_words_have_the_times_at_which_they_were_spoken(model: PocketSphinx) -> None:
    pcm = clip("turn on the kitchen lights")
    words = whole(model, pcm).words
    assert [word.text for word in words] == ["turn", "on", "the", "kitchen", "lights"]
    times = [time for word in words for time in (word.start_ms, word.end_ms)]
    assert times == sorted(times)
    assert 200 <= times[0] <= 500
    assert times[-1] <= 1000 * len(pcm) / ASR_RATE_HZ


@pytest.mark.parametrize("piece", [1600, 4000, 7777])
def test_audio_in_pieces_gives_the_same_as_the_whole(model: PocketSphinx, piece: int) -> None:
    pcm = clip("cancel the pasta timer")
    shown = partials(model, pcm, piece=piece)
    assert whole(model, pcm, "live") == whole(model, pcm)
    assert "cancel the pasta timer".startswith(" ".join(shown[-1].split()[:2]))


def test_a_forgotten_search_does_not_change_the_result(model: PocketSphinx) -> None:
    pcm = clip("close the garage door")
    partials(model, pcm)
    model.forget("live")
    assert whole(model, pcm, "live") == whole(model, pcm)


def test_there_may_be_more_utterances_than_decoders(model: PocketSphinx) -> None:
    clips = {text: clip(text, voice) for text, voice in SPOKEN}
    longest = max(map(len, clips.values()))
    for end in range(PIECE, longest, PIECE):
        model.decode([AsrItem(text, pcm[:end], is_final=False) for text, pcm in clips.items()])
    items = [AsrItem(text, pcm, is_final=True) for text, pcm in clips.items()]
    assert [result.text for result in model.decode(items)] == list(clips)


def test_forget_returns_the_decoder(model: PocketSphinx) -> None:
    partials(model, clip("what time is it"), "cancelled")
    kept = len(model._idle_decoders)
    model.forget("cancelled")
    model.forget("cancelled")
    assert len(model._idle_decoders) == kept + 1
    assert not model._searches


def tone(hz: float, seconds: float = 3) -> Pcm:
    wave = 8000 * np.sin(2 * np.pi * hz * np.arange(int(seconds * ASR_RATE_HZ)) / ASR_RATE_HZ)
    pcm: Pcm = wave.astype(np.int16)
    return pcm


def hiss(seed: int, level: float, *, smooth: int = 1, seconds: float = 3) -> Pcm:
    noise = np.random.default_rng(seed).normal(size=int(seconds * ASR_RATE_HZ))
    noise = np.convolve(noise, np.ones(smooth) / smooth, "same")
    pcm: Pcm = (level * noise / noise.std()).astype(np.int16)
    return pcm


def knocks() -> Pcm:
    pcm = hiss(3, 30).astype(np.float64)
    for at in range(4000, len(pcm) - 2000, 9000):
        pcm[at : at + 2000] += 9000 * np.exp(-np.arange(2000) / 150) * np.sin(np.arange(2000) / 4)
    clipped: Pcm = pcm.clip(-32768, 32767).astype(np.int16)
    return clipped


@pytest.mark.parametrize(
    "pcm",
    [
        np.zeros(0, np.int16),
        np.zeros(100, np.int16),
        silence(2000, ASR_RATE_HZ),
        np.full(ASR_RATE_HZ, 5, np.int16),
    ],
    ids=["empty", "100 samples", "zeros", "quieter than a microphone"],
)
def test_silence_gives_no_text(model: PocketSphinx, pcm: Pcm) -> None:
    result = whole(model, pcm)
    assert result.text == ""
    assert not result.is_rejected


@pytest.mark.parametrize(
    "pcm",
    [hiss(1, 300), hiss(2, 6000), hiss(4, 3000, smooth=20), tone(440), tone(1800), knocks()],
    ids=["quiet hiss", "loud hiss", "rumble", "tone", "whistle", "knocks"],
)
def test_noise_gives_no_text(model: PocketSphinx, pcm: Pcm) -> None:
    assert whole(model, pcm).text == ""


def test_a_click_gives_no_text(model: PocketSphinx) -> None:
    pcm = np.zeros(300, np.int16)
    pcm[100] = 20000
    assert whole(model, pcm).text == ""


def test_prose_is_not_forced_into_a_command() -> None:
    model = create(Settings(free_speech=False))
    pcm = clip("the committee published its annual findings about rural education")
    result = whole(model, pcm)
    everything = AsrOptions("en", no_speech_threshold=1.0)
    (forced,) = model.decode([AsrItem("forced", pcm, is_final=True, options=everything)])
    model.close()
    assert result.text == ""
    assert result.is_rejected
    assert forced.text, "unless all is asked for that was heard"


def test_free_speech_is_transcribed_with_the_general_model(model: PocketSphinx) -> None:
    heard = whole(model, clip("the president of the united states spoke about the economy")).text
    assert {"president", "united", "states"} <= set(heard.split())


def test_names_of_the_home_are_learned() -> None:
    phrases = tuple(f"turn {way} the wurlitzer" for way in ("on", "off"))
    model = create(Settings(phrases=phrases, free_speech=False))
    result = whole(model, clip("turn on the wurlitzer"))
    model.close()
    assert result.text == "turn on the wurlitzer"


def test_a_folder_without_a_model_is_named() -> None:
    with pytest.raises(ConfigError, match=r"model_dir: there is no /nowhere/cmudict-en-us\.dict"):
        create(Settings(model_dir="/nowhere"))


@pytest.mark.parametrize(
    "options", [{"lm_weight": 0.0}, {"min_confidence": 2.0}, {"decoders": 0}, {"lmweight": 9.0}]
)
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, ValidationError)):
        read_settings(Settings, options, where="asr.pocketsphinx")
