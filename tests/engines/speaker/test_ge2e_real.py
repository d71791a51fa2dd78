"""The real weights: vectors are those of Resemblyzer's own code, and people are known again."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from bench.measurements.speakers import find_recordings
from core.audio import ASR_RATE_HZ, Pcm
from core.conversation.speakers import SpeakerProfile, VoiceVector, mean_vector, nearest_speaker
from engines.base.speaker import SpeakerItem, SpeakerModel
from engines.registry import load
from media.files.decode import decode_file
from tests.real_models import ge2e
from tests.shared import shared_data

pytestmark = pytest.mark.real

REFERENCE = Path(__file__).with_name("resemblyzer_vectors.json")
"""File of `data/speakers` -> vector by Resemblyzer 0.1.4, torch 2.14 and librosa 0.11:
`embed_utterance(preprocess_wav(samples))`."""


@pytest.fixture(scope="module")
def model() -> SpeakerModel:
    return load("speaker", "ge2e", {"model": str(ge2e())})


def _vectors(model: SpeakerModel, clips: Sequence[Pcm]) -> list[VoiceVector]:
    items = [SpeakerItem(clip.astype("<i2").tobytes()) for clip in clips]
    return [np.frombuffer(result.vector, "<f4") for result in model.embed(items)]


def test_vectors_are_those_of_resemblyzers_own_code(model: SpeakerModel) -> None:
    for name, reference in json.loads(REFERENCE.read_bytes()).items():
        clip = decode_file(shared_data("speakers", *name.split("/")), ASR_RATE_HZ)
        (vector,) = _vectors(model, [clip])
        expected = np.array(reference)
        assert vector @ expected / np.linalg.norm(expected) >= 0.999, name


def test_people_are_known_again_after_three_recordings_and_guests_are_not(
    model: SpeakerModel,
) -> None:
    people, guests = find_recordings(shared_data("speakers"))
    profiles = [
        SpeakerProfile(name, name, mean_vector(_vectors(model, clips[:3])))
        for name, clips in people.items()
    ]
    for name, clips in people.items():
        for vector in _vectors(model, [clip[: 4 * ASR_RATE_HZ] for clip in clips[3:5]]):
            match = nearest_speaker(vector, profiles)
            assert match is not None
            assert match.name == name
    for vector in _vectors(model, [clip[: 4 * ASR_RATE_HZ] for clip in guests[:12]]):
        assert nearest_speaker(vector, profiles) is None
