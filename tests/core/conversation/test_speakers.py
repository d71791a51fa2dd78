"""The comparison of a voice with known voices."""

import numpy as np
import pytest

from core.conversation.speakers import (
    SpeakerProfile,
    VoiceVector,
    confirmed_speaker,
    mean_vector,
    nearest_speaker,
)


def _vector(*numbers: float) -> VoiceVector:
    return mean_vector([np.array(numbers, np.float32)])


ANNA = SpeakerProfile("spk_1", "Anna", _vector(1, 0, 0))
BEN = SpeakerProfile("spk_2", "Ben", _vector(0, 1, 0))


@pytest.mark.parametrize(
    ("vector", "name"),
    [
        (_vector(1, 0.1, 0), "Anna"),
        (_vector(0.6, 1, 0), "Ben"),
        (_vector(1, 1, 1), None),  # near to both, known to nobody
        (_vector(0, 0, 1), None),
        (_vector(1, 0), None),  # of another model
    ],
)
def test_the_nearest_voice_counts_if_it_is_near_enough(
    vector: VoiceVector, name: str | None
) -> None:
    match = nearest_speaker(vector, [ANNA, BEN], threshold=0.75)
    assert (match.name if match else None) == name


def test_nobody_is_known_where_nobody_taught_a_voice() -> None:
    assert nearest_speaker(_vector(1, 0, 0), []) is None


def test_a_profile_shows_no_vector_in_its_repr() -> None:
    assert repr(ANNA) == "SpeakerProfile(id='spk_1', name='Anna')"


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        ([_vector(1, 0.1, 0), _vector(1, 0, 0.1)], "Anna"),
        ([_vector(1, 0.1, 0)], "Anna"),
        ([], None),
        ([_vector(1, 0.1, 0), _vector(0.1, 1, 0)], None),  # two people, one after the other
        ([_vector(1, 0, 0), _vector(1, 0, 0), _vector(0.6, 0, 0.8)], None),  # a guest between
        ([_vector(1, 1, 0)], None),  # two at once
        ([_vector(0.77, 0, 0.64)], None),  # good enough for a name
    ],
)
def test_a_guard_needs_one_sure_voice_in_all_parts(
    parts: list[VoiceVector], name: str | None
) -> None:
    match = confirmed_speaker(parts, [ANNA, BEN])
    assert (match.name if match else None) == name
