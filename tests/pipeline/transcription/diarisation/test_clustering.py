"""Groups of voices: their number is found, and hours of speech are sorted in parts."""

import numpy as np
import pytest

from pipeline.transcription.diarisation import clustering
from pipeline.transcription.diarisation.clustering import Floats, cluster_voices, group_means

THRESHOLD = 0.7


def voices(speakers: list[int], *, spread: float = 0.1, dimensions: int = 16) -> Floats:
    """Returns a vector of length 1 near that of each speaker."""
    random = np.random.default_rng(3)
    vectors = np.eye(dimensions)[speakers] + random.normal(0, spread, (len(speakers), dimensions))
    unit: Floats = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return unit


def groups(labels: object) -> list[int]:
    """Returns the groups, numbered in the order in which they come."""
    seen: dict[int, int] = {}
    return [seen.setdefault(int(label), len(seen)) for label in np.asarray(labels)]


@pytest.mark.parametrize(
    "speakers",
    [[], [0], [0, 0], [0, 1], [0, 0, 1, 1, 0, 2], [0] * 30, [0, 1, 2, 3, 4] * 8, [0] * 30 + [1]],
)
def test_the_number_of_speakers_is_found(speakers: list[int]) -> None:
    assert groups(cluster_voices(voices(speakers), THRESHOLD)) == speakers


def test_a_higher_threshold_gives_more_groups() -> None:
    vectors = voices([0, 0, 1, 1, 2, 2] * 4, spread=0.2)
    counts = [len({*cluster_voices(vectors, at)}) for at in (-1.0, 0.5, 0.9, 1.01)]
    assert counts == sorted(counts)
    assert (counts[0], counts[-1]) == (1, len(vectors))


def test_the_mean_cosine_of_all_pairs_decides() -> None:
    """The third vector is near the second alone."""
    angles = np.radians([0, 30, 70])
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    mean = (np.cos(np.radians(70)) + np.cos(np.radians(40))) / 2
    assert groups(cluster_voices(vectors, mean + 0.01)) == [0, 0, 1]
    assert groups(cluster_voices(vectors, mean - 0.01)) == [0, 0, 0]


def test_long_recordings_are_sorted_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    speakers = [0, 1, 0, 2, 3] * 20
    monkeypatch.setattr(clustering, "MAX_COMPARED", 7)
    assert groups(cluster_voices(voices(speakers), THRESHOLD)) == groups(speakers)
    # Nothing is alike: it ends all the same.
    assert len({*cluster_voices(np.eye(20, dtype=np.float32), THRESHOLD)}) == 20


def test_the_mean_of_a_group() -> None:
    vectors = np.array([[1, 0], [0, 1], [0, 3]], np.float32)
    assert group_means(vectors, np.array([0, 1, 1])).tolist() == [[1, 0], [0, 2]]
