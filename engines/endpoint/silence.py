"""Engine without turn detection: only the length of the silence ends a turn."""

from msgspec import Struct

from core.audio import Pcm


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine `silence`: there are none."""


class SilenceEndOfTurn:
    """An `EndOfTurnDetector` that never gives a probability."""

    name = "silence"

    def probability(self, pcm: Pcm) -> float | None:
        """Returns None: not known (see `EndOfTurnDetector.probability`)."""
        return None


def create(settings: Settings) -> SilenceEndOfTurn:
    """Returns the engine."""
    return SilenceEndOfTurn()
