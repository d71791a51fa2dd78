"""Was that a sentence the assistant knows? One number from what the search leaves behind.

Noise and music also have a best path. It differs from speech in four ways, which a logistic model
weighs: its words make an unlikely sentence, they are stretched over far too many frames, loud
moments lie outside any word, and the acoustic score per spoken frame is worse. Speech outside the
command language fails mostly the first. The weights were fitted on synthesised commands against
recordings of noise, music and read prose.
"""

from math import exp, log

import numpy as np

from engines.asr.pocketsphinx.decoder import Decoded
from engines.asr.pocketsphinx.features import Mel
from engines.asr.pocketsphinx.lm import Trigrams

_LOUD_DB = 25.0
"Frames within this of the loudest one should belong to a word: vowels and most consonants do."

_BIAS = 8.496
_PER_LOG10_WORD = 2.684
"Mean log10 probability per word: -0.8 in commands, -2.4 in prose forced into them."
_PER_LOG_FRAMES = -2.340
"Log of the frames per word: 26 in commands, 90 and more in noise and music."
_PER_COVERAGE = 6.921
"Share of loud frames inside words: 0.98 in commands, 0.8 in noise."
_PER_SCORE = 2.310
"Path score per hundred and spoken frame: -0.5 in commands, -0.7 in prose."
_PER_LOG_WORDS = -0.702
"Log of the number of words: longer sentences have more chances to fail, and do."


def confidence(decoded: Decoded, mel: Mel, language: Trigrams, *, is_final: bool) -> float:
    """0 to 1: how sure we are that these words, and not something else, were said."""
    words = decoded.words
    if not words:
        return 0.0
    inside = np.zeros(len(mel), np.bool_)
    for span in decoded.spans:
        inside[span.start : span.end] = True
    spoken = int(inside.sum())
    if not spoken:
        return 0.0
    power = mel.sum(axis=1)
    loud = power > power.max() * 10 ** (-_LOUD_DB / 10)
    coverage = float((inside & loud).sum() / max(1, loud.sum()))
    z = (
        _BIAS
        + _PER_LOG10_WORD * language.mean_log10(words, is_whole=is_final)
        + _PER_LOG_FRAMES * log(spoken / len(words))
        + _PER_COVERAGE * coverage
        + _PER_SCORE * max(decoded.score, -1000.0 * spoken) / spoken / 100
        + _PER_LOG_WORDS * log(len(words))
    )
    return 1 / (1 + exp(-max(-30.0, min(30.0, z))))
