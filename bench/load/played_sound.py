"""What a listener hears of a sound that is played while it arrives."""

RATE_HZ = 24_000
"Rate of `response_format: pcm` at `/v1/audio/speech`, as OpenAI documents it; 16 bits, mono."

_BYTES_PER_S = 2 * RATE_HZ


class PlayedSound:
    """Follows a player that starts with the first sound, and waits wherever it has played all."""

    def __init__(self) -> None:
        self.first_s: float | None = None
        "Time of the first sound; None before it."
        self.gap_s = 0.0
        "Time for which the player had to wait so far, all its pauses together."
        self._bytes = 0

    @property
    def length_s(self) -> float:
        """Length of the sound so far."""
        return self._bytes / _BYTES_PER_S

    def push(self, data: bytes, at_s: float) -> None:
        """Takes the next bytes of the sound, and the time at which they came."""
        if not data:
            return
        if self.first_s is None:
            self.first_s = at_s
        self.gap_s = max(self.gap_s, at_s - self.first_s - self.length_s)
        self._bytes += len(data)
