"""Sorts vectors of voices into groups, one for each speaker, whose number is not known. Pure."""

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
Labels: TypeAlias = npt.NDArray[np.intp]
"Number of the group of each vector, from 0 on."

MAX_COMPARED = 1000
"""Most vectors that are compared with each other at once: 12 minutes of speech. Time and memory
grow with the square. Longer recordings are sorted in parts, and then the groups of the parts."""


def cluster_voices(vectors: Floats, threshold: float) -> Labels:
    """Returns the group of each vector.

    `vectors`: shape (n, dimensions), each of length 1. Two groups become one as long as the mean
    cosine of their members is `threshold` or more, the most similar first.
    """
    return _cluster(vectors, np.ones(len(vectors), np.float32), threshold)


def group_means(vectors: Floats, labels: Labels) -> Floats:
    """Returns the mean of each group's vectors, shape (groups, dimensions)."""
    return _weighted_means(vectors, np.ones(len(vectors), np.float32), labels)[0]


def _cluster(means: Floats, counts: Floats, threshold: float) -> Labels:
    """Returns the group of each of several smaller groups, by their means and sizes."""
    if len(means) <= MAX_COMPARED:
        return _merge(means, counts, threshold)
    labels = np.zeros(len(means), np.intp)
    groups = 0
    for start in range(0, len(means), MAX_COMPARED):
        part = slice(start, start + MAX_COMPARED)
        labels[part] = groups + _merge(means[part], counts[part], threshold)
        groups = int(labels[part].max()) + 1
    if groups == len(means):
        return labels
    return _cluster(*_weighted_means(means, counts, labels), threshold)[labels]


def _weighted_means(means: Floats, counts: Floats, labels: Labels) -> tuple[Floats, Floats]:
    """Returns the mean and the size of each group."""
    groups = int(labels.max(initial=-1)) + 1
    sums, sizes = np.zeros((groups, means.shape[1]), np.float32), np.zeros(groups, np.float32)
    np.add.at(sums, labels, means * counts[:, None])
    np.add.at(sizes, labels, counts)
    return sums / sizes[:, None], sizes


def _merge(means: Floats, counts: Floats, threshold: float) -> Labels:
    """Merges the two most similar groups again and again. The cosines of a merged group with the
    others are the weighted means of those of its two parts (average linkage)."""
    labels, counts = np.arange(len(means)), counts.copy()
    cosines = means @ means.T
    np.fill_diagonal(cosines, -np.inf)
    nearest = cosines.argmax(axis=1) if len(means) else labels
    while len(means):
        best = cosines[np.arange(len(means)), nearest]
        kept = int(best.argmax())
        if best[kept] < threshold:
            break
        gone = int(nearest[kept])
        total = counts[kept] + counts[gone]
        merged = (counts[kept] * cosines[kept] + counts[gone] * cosines[gone]) / total
        cosines[kept] = cosines[:, kept] = merged
        cosines[gone] = cosines[:, gone] = -np.inf
        counts[kept] = total
        labels[labels == gone] = kept
        # A mean is never higher than both of its parts, so only groups change that were near one
        # of the two.
        is_stale = (nearest == kept) | (nearest == gone)
        is_stale[[kept, gone]] = True
        nearest[is_stale] = cosines[is_stale].argmax(axis=1)
    return np.unique(labels, return_inverse=True)[1]
