"""Confidence that a path of the search is a command, or speech at all.

Noise and music also have a best path. It differs from that of speech: words are stretched over too
many frames, and loud moments are outside of words. Quiet moments are missing, and the acoustic
score per spoken frame is worse. Other speech that was decoded as commands makes an unlikely
sentence. Two logistic models weigh this, one with the language model's score and one without. Their
weights were fitted on synthesised commands and read prose against recordings of noise and music.
"""

from dataclasses import dataclass
from math import exp, log

import numpy as np

from engines.asr.pocketsphinx.decoder import BestPath
from engines.asr.pocketsphinx.features import Mel

_LOUD_RANGE_DB = 25.0
"Range below the loudest frame in which frames should belong to a word: vowels, most consonants."

_MIN_SCORE = -10.0
"Least score, for a path with a likelihood of 0: ten times worse than noise."

_MAX_CONTRAST_DB = 18.0
"Largest contrast that counts: more proves nothing. So a fan lowers it only if it is loud."

_MIN_POWER = 1e-3  # keeps the logarithm of digital silence finite


@dataclass(frozen=True, slots=True)
class ConfidenceFeatures:
    """Inputs of both logistic models."""

    log_frames: float
    "Natural log of the frames per word: 26 frames in speech, 90 and more in noise and music."
    coverage: float
    "Share of loud frames inside words: 0.98 in commands, 0.8 in noise."
    score: float
    "Path score per spoken frame, divided by 100: -0.5 in commands, -0.7 in other prose."
    log_words: float
    "Natural log of the number of words: longer sentences contain an error more often."
    contrast_db: float
    "Difference between loud and quiet moments: speech has short pauses, music goes on."


def confidence_features(path: BestPath, mel: Mel) -> ConfidenceFeatures | None:
    """Returns the inputs for a path; None if it has no word. mel: of the whole utterance."""
    inside = np.zeros(len(mel), np.bool_)
    for span in path.spans:
        inside[span.start : span.end] = True
    spoken = int(inside.sum())
    if not spoken:
        return None
    power = mel.sum(axis=1)
    loud = power > power.max() * 10 ** (-_LOUD_RANGE_DB / 10)
    low, high = np.percentile(power, (10, 95)) + _MIN_POWER
    return ConfidenceFeatures(
        log_frames=log(spoken / len(path.spans)),
        coverage=float((inside & loud).sum() / max(1, loud.sum())),
        score=max(path.score / spoken / 100, _MIN_SCORE),
        log_words=log(len(path.spans)),
        contrast_db=float(min(10 * np.log10(high / low), _MAX_CONTRAST_DB)),
    )


def command_confidence(features: ConfidenceFeatures, mean_log10: float) -> float:
    """Returns the confidence, 0 to 1, that the path is this command.

    mean_log10: the language model's log10 probability per word; -0.8 in commands, -2.4 in prose.
    """
    return _logistic(
        -0.244
        + 2.801 * mean_log10
        - 1.477 * features.log_frames
        + 5.965 * features.coverage
        + 1.534 * features.score
        - 0.648 * features.log_words
        + 0.363 * features.contrast_db
    )


def speech_confidence(features: ConfidenceFeatures) -> float:
    """Returns the confidence, 0 to 1, that any words were spoken at all."""
    return _logistic(
        -2.403
        - 3.275 * features.log_frames
        + 16.885 * features.coverage
        + 0.443 * features.score
        + 0.434 * features.log_words
    )


def _logistic(z: float) -> float:
    return 1 / (1 + exp(-max(-30.0, min(30.0, z))))
