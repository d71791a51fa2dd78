"""Was that speech, and a sentence the assistant knows? Numbers from what the search leaves behind.

Noise and music also have a best path. It differs from speech in that its words are stretched over
too many frames, that loud moments lie outside any word, that quiet moments are missing, and that
the acoustic score per spoken frame is worse. Speech forced into commands it is not makes an
unlikely sentence. Two logistic models weigh this, one with the language model and one without.
Their weights were fitted on synthesised commands and read prose against recordings of noise and
music.
"""

from dataclasses import dataclass
from math import exp, log

import numpy as np

from engines.asr.pocketsphinx.decoder import BestPath
from engines.asr.pocketsphinx.features import Mel

_LOUD_DB = 25.0
"Frames within this of the loudest one should belong to a word: vowels and most consonants do."

_WORST_SCORE = -10.0
"A path that lost its likelihood altogether counts as ten times worse than noise."

_MAX_CONTRAST_DB = 18.0
"More is no better proof of speech; a fan in the room costs nothing until it is this close."

_SMALLEST = 1e-3  # keeps the logarithm of digital silence finite


@dataclass(frozen=True, slots=True)
class ConfidenceFeatures:
    """What the two models weigh, beside the language model."""

    log_frames: float
    "Log of the frames per word: 26 in speech, 90 and more in noise and music."
    coverage: float
    "Share of loud frames inside words: 0.98 in commands, 0.8 in noise."
    score: float
    "Path score per hundred and spoken frame: -0.5 in commands, -0.7 in prose forced into them."
    log_words: float
    "Log of the number of words: longer sentences have more chances to fail, and do."
    contrast_db: float
    "Between loud and quiet moments: speech closes its lips, music keeps on sounding."


def evidence(decoded: BestPath, mel: Mel) -> ConfidenceFeatures | None:
    """None if there is no word."""
    inside = np.zeros(len(mel), np.bool_)
    for span in decoded.spans:
        inside[span.start : span.end] = True
    spoken = int(inside.sum())
    if not spoken:
        return None
    power = mel.sum(axis=1)
    loud = power > power.max() * 10 ** (-_LOUD_DB / 10)
    low, high = np.percentile(power, (10, 95)) + _SMALLEST
    return ConfidenceFeatures(
        log_frames=log(spoken / len(decoded.spans)),
        coverage=float((inside & loud).sum() / max(1, loud.sum())),
        score=max(decoded.score / spoken / 100, _WORST_SCORE),
        log_words=log(len(decoded.spans)),
        contrast_db=float(min(10 * np.log10(high / low), _MAX_CONTRAST_DB)),
    )


def command_confidence(seen: ConfidenceFeatures, mean_log10: float) -> float:
    """0 to 1: how sure we are of this command. `mean_log10` is the language model's, per word:
    -0.8 in commands, -2.4 in prose."""
    return _logistic(
        -0.244
        + 2.801 * mean_log10
        - 1.477 * seen.log_frames
        + 5.965 * seen.coverage
        + 1.534 * seen.score
        - 0.648 * seen.log_words
        + 0.363 * seen.contrast_db
    )


def speech_confidence(seen: ConfidenceFeatures) -> float:
    """0 to 1: how sure we are that words were spoken at all, whichever they were."""
    return _logistic(
        -2.403
        - 3.275 * seen.log_frames
        + 16.885 * seen.coverage
        + 0.443 * seen.score
        + 0.434 * seen.log_words
    )


def _logistic(z: float) -> float:
    return 1 / (1 + exp(-max(-30.0, min(30.0, z))))
