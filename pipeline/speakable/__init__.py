"""What a voice reads instead of what is written: no markdown, no emoji, units and symbols as words.

The transcript keeps the text as the model wrote it; `Spoken.origin` leads back to it.
"""

from pipeline.speakable.mapped import Spoken
from pipeline.speakable.reader import ClauseReader, speakable

__all__ = ["ClauseReader", "Spoken", "speakable"]
