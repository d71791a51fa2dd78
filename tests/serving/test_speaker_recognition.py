"""The strict comparison of a whole utterance, part by part. The model's vectors are scripted."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, Pcm
from core.named_key import NamedKey
from core.speakers import SpeakerProfile, mean_vector
from engines.base.speaker import SpeakerResult, VoiceQuality
from serving.speaker.model import SpeakerPriority
from serving.speaker.recognition import SpeakerRecognition, guard_parts

ANNA, GUEST = (mean_vector([np.array(one, np.float32)]) for one in ((1, 0), (0, 1)))


class Voices:
    """Knows Anna."""

    def count_people(self, key: NamedKey | None) -> int:
        return 1

    def profiles(self, key: NamedKey | None, model: str) -> Sequence[SpeakerProfile]:
        assert model == "model"
        return [SpeakerProfile("spk_1", "Anna", ANNA)]


class ByLevel(SpeakerRecognition):
    """Hears Anna in samples of 1, a guest in those of 2, and too little speech in silence."""

    def __init__(self) -> None:
        nothing: Any = None
        super().__init__(nothing, Voices())
        self.heard_s: list[float] = []

    async def listen(self, pcm: Pcm, priority: SpeakerPriority) -> tuple[str, SpeakerResult]:
        self.heard_s.append(len(pcm) / ASR_RATE_HZ)
        vector = {0: b"", 1: ANNA.tobytes(), 2: GUEST.tobytes()}[int(np.median(pcm))]
        return "model", SpeakerResult(vector, VoiceQuality(1000, -20.0, 30.0))


def sound(*runs: tuple[int, float]) -> Pcm:
    """Returns runs of (level, seconds)."""
    pieces = [np.full(round(seconds * ASR_RATE_HZ), level, np.int16) for level, seconds in runs]
    return np.concatenate([np.zeros(0, np.int16), *pieces])


@pytest.mark.parametrize(
    ("pcm", "name"),
    [
        (sound((1, 1.0)), "Anna"),
        (sound((1, 6.0)), "Anna"),
        (sound((1, 4.0), (0, 2.0)), "Anna"),  # silence at the end says nothing
        (sound((1, 4.0), (2, 2.0)), None),
        (sound((2, 2.0), (1, 4.0)), None),
        (sound((2, 3.0)), None),
        (sound((0, 3.0)), None),
        (sound(), None),
    ],
)
def test_all_parts_of_an_utterance_have_to_be_of_one_person(pcm: Pcm, name: str | None) -> None:
    match = asyncio.run(ByLevel().confirm(pcm, None))
    assert (match.name if match else None) == name


@pytest.mark.parametrize(
    ("seconds", "parts"), [(0.5, 1), (2.0, 1), (3.5, 2), (4.0, 2), (6.0, 3), (20.0, 10)]
)
def test_parts_are_about_two_seconds_and_nothing_is_left_out(seconds: float, parts: int) -> None:
    found = guard_parts(sound((1, seconds)))
    assert len(found) == parts
    assert sum(map(len, found)) == round(seconds * ASR_RATE_HZ)
