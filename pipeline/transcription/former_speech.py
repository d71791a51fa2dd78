"""Decodes an utterance together with the speech shortly before it.

A sentence that goes on after a pause is hard to understand without its beginning. So a recogniser
that can continue from known words gets the sound of both, and writes only the new words.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from engines.base import AsrInfo, AsrItem, AsrOptions

MAX_TOGETHER_MS = 9500
"""Longest audio that is decoded together. Whisper's shortest window has 10 s, of which 500 ms are
silent, so up to this length former speech costs its encoder nothing. A longer utterance has context
enough of its own."""

_MAX_TOGETHER = ms_to_samples(MAX_TOGETHER_MS, ASR_RATE_HZ)


@dataclass(frozen=True, slots=True)
class FormerSpeech:
    """Speech that ended shortly before an utterance began, by the same speaker."""

    pcm: Pcm
    "Its audio, 16 kHz. It may end before the utterance begins, because a pause has no words."
    words: str
    "All its words, at least one."

    def before(self, item: AsrItem) -> AsrItem:
        """Returns the item with this speech before its own."""
        options = replace(item.options, former_words=self.words)
        return replace(item, pcm=np.concatenate([self.pcm, item.pcm]), options=options)


FormerSpeechSource = Callable[[int], FormerSpeech | None]
"""Function from a number of samples to the newest speech before an utterance. It returns None if
there is none, if the speech is longer than that, or if its words are not known yet."""


def no_former_speech(room: int) -> FormerSpeech | None:
    """Returns None, for an utterance that is decoded alone."""
    return None


def former_room(samples: int) -> int:
    """Returns how many samples of former speech may be decoded with `samples` of an utterance."""
    return max(0, _MAX_TOGETHER - samples)


def takes_former_speech(info: AsrInfo, options: AsrOptions) -> bool:
    """Returns whether the recogniser can continue from known words with these options. Details of
    each token or word are only right for text that was decoded alone."""
    return (
        "former_words" in info.supports
        and not options.prefix
        and not options.token_logprobs
        and options.timestamps == "none"
    )
