"""The strict comparison of a whole utterance, part by part. The model's vectors are scripted."""

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from core.access.named_key import NamedKey
from core.audio import ASR_RATE_HZ, Pcm
from core.conversation.speakers import (
    GE2E_THRESHOLDS,
    HeardVoice,
    SpeakerProfile,
    VoiceThresholds,
    mean_vector,
)
from engines.base.speaker import SpeakerResult, VoiceQuality
from serving.speaker.model import SpeakerPriority
from serving.speaker.recognition import SpeakerRecognition, guard_parts

ANNA, FOLLOWED, FAR, GUEST = (
    mean_vector([np.array(one, np.float32)]) for one in ((1, 0), (1, 0.3), (1, 1.2), (0, 1))
)


class Voices:
    """Knows Anna."""

    def __init__(self) -> None:
        self.is_due = True
        self.followed: list[tuple[str, HeardVoice]] = []

    def count_people(self, key: NamedKey | None, model: str) -> int:
        return 1

    def profiles(
        self, key: NamedKey | None, model: str, *, taught_only: bool = False
    ) -> Sequence[SpeakerProfile]:
        assert model == "model"
        return [SpeakerProfile("spk_1", "Anna", ANNA if taught_only else FOLLOWED)]

    def wants_sample(self, speaker_id: str) -> bool:
        return self.is_due

    async def follow(self, speaker_id: str, voice: HeardVoice) -> None:
        self.followed.append((speaker_id, voice))


class ByLevel(SpeakerRecognition):
    """Hears Anna in samples of 1, a guest in those of 2, too little speech in silence, and in those
    of 3 a voice that only the recordings resemble that the server added."""

    def __init__(self) -> None:
        nothing: Any = None
        self.voices = Voices()
        super().__init__(nothing, self.voices)
        self.heard_s: list[float] = []

    @property
    def thresholds(self) -> VoiceThresholds:
        return GE2E_THRESHOLDS

    async def listen(self, pcm: Pcm, priority: SpeakerPriority) -> tuple[str, SpeakerResult]:
        self.heard_s.append(len(pcm) / ASR_RATE_HZ)
        vectors = {0: b"", 1: ANNA.tobytes(), 2: GUEST.tobytes(), 3: FAR.tobytes()}
        speech_ms = round(len(pcm) / ASR_RATE_HZ * 1000)
        return "model", SpeakerResult(
            vectors[int(np.median(pcm))], VoiceQuality(speech_ms, -20.0, 30.0)
        )


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


@pytest.mark.parametrize(
    ("pcm", "is_due", "is_added"),
    [
        (sound((1, 4.0)), True, True),
        (sound((1, 4.0)), False, False),
        (sound((1, 2.9)), True, False),  # too little speech
        (sound((1, 4.0), (2, 2.0)), True, False),  # a guest said the end
        (sound((3, 4.0)), True, False),  # known by what was added only
    ],
)
def test_only_a_sure_voice_is_added_to_what_a_person_taught(
    pcm: Pcm, is_due: bool, is_added: bool
) -> None:
    recognition = ByLevel()
    recognition.voices.is_due = is_due
    assert asyncio.run(recognition.compare(pcm[:48000], None, SpeakerPriority.TURN))[0]
    asyncio.run(recognition.follow(pcm, None, "spk_1"))
    added = [(who, voice.speech_ms) for who, voice in recognition.voices.followed]
    assert added == ([("spk_1", 4000)] if is_added else [])
