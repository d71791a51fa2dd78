"""Positions in an utterance at which a streaming recogniser decodes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DecodeSteps:
    """Positions in an utterance at which a streaming model decodes. Between two of them its words
    do not change, however much audio it gets."""

    first_ms: float
    "Audio that the first step needs."
    every_ms: float
    "Further audio that each later step needs."

    def decoded_ms(self, audio_ms: float) -> float:
        """Returns how much is decoded once `audio_ms` of audio have arrived, in ms."""
        if audio_ms < self.first_ms:
            return 0.0
        return self.first_ms + (audio_ms - self.first_ms) // self.every_ms * self.every_ms
