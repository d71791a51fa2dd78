"""Transcripts of a recording at each door, with a scripted recogniser."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest

from bench.measurements.material.live_doors import (
    DOORS,
    AudioPacket,
    RecognisedSpeech,
    realtime_packets,
    transcribe_at_door,
    transcribe_without_door,
    webrtc_packets,
    xiaozhi_packets,
)
from bench.measurements.material.remembered_results import RememberedResults, RememberingRecogniser
from core.audio import ASR_RATE_HZ, Pcm
from engines.base import AsrInfo, AsrItem, AsrResult
from tests.bench.tools.spoken_levels import ONE, TWO, level_audio
from tests.pipeline.fakes import FRAME, LoudVads, words_of

pytestmark = pytest.mark.many


class LevelModel:
    """Reads words from levels, as `LevelAsr` does, but rounds them, because codecs change them."""

    info = AsrInfo("level", "level", ("en",), 4, is_incremental=False)

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        return [AsrResult(words_of(rounded(item.pcm)), 0.9, "en") for item in items]

    def forget(self, utterance: str) -> None: ...

    def close(self) -> None: ...


def rounded(pcm: Pcm) -> Pcm:
    """Returns the audio with the mean level of each frame, in steps of 1000."""
    whole = pcm[: len(pcm) // FRAME * FRAME].reshape(-1, FRAME)
    levels = np.sqrt(np.mean(np.square(whole.astype(np.float64)), axis=1))
    return np.repeat(np.round(levels / ONE).astype(np.int16) * ONE, FRAME)


PCM = level_audio((0, 300), (ONE, 600), (0, 700), (TWO, 600), (0, 300))


def recogniser() -> RememberingRecogniser:
    return RememberingRecogniser(LevelModel(), RememberedResults(), decode_s=0.27)


@pytest.mark.parametrize("door", DOORS)
def test_each_door_gives_the_words_of_the_whole_file(door: str) -> None:
    result = transcribe_at_door(recogniser(), LoudVads(), door, PCM)
    assert set(result.text.split()) == {"one", "two"}
    assert result.empty_utterances == result.rejected_words == 0


def test_a_recogniser_without_a_door_gives_the_same_words() -> None:
    assert transcribe_without_door(recogniser(), PCM) == "one two"


def test_words_rejected_as_noise_are_counted() -> None:
    short = level_audio((0, 300), (ONE, 100), (0, 300))
    result = transcribe_at_door(recogniser(), LoudVads(), "realtime/server_vad", short, "strict")
    assert result == RecognisedSpeech("", empty_utterances=1, rejected_words=1)


@pytest.mark.parametrize(
    ("packets", "frames"), [(realtime_packets, 1), (webrtc_packets, 1), (xiaozhi_packets, 3)]
)
def test_a_carrier_keeps_the_length_of_the_sound(
    packets: Callable[[Pcm], Iterator[AudioPacket]], frames: int
) -> None:
    received = list(packets(level_audio((ONE, 600))))
    assert {len(packet) for packet in received} == {frames}
    assert sum(len(frame.pcm) for packet in received for frame in packet) == 0.6 * ASR_RATE_HZ
