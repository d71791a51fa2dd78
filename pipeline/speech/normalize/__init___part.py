"""What a voice reads instead of what is written: no markdown, no emoji, units and symbols as words.

The transcript keeps the text as the model wrote it; `Spoken.origin` leads back to it.
"""

from pipeline.speech.normalize import ClauseReader, speakable
from pipeline.speech.normalize.mapped import Spoken

__all__ = ["ClauseReader", "Spoken", "speakable"]
