"""What a voice reads instead of what is written: no markdown, no emoji, units and symbols as words.

The transcript keeps the text as the model wrote it; `NormalizedText.origin` leads back to it.
"""

from pipeline.speech.normalize import ClauseNormalizer, speakable
from pipeline.speech.normalize.mapped import NormalizedText

__all__ = ["ClauseNormalizer", "NormalizedText", "speakable"]
