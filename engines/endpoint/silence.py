"""Engine without turn detection: a turn is over after the usual silence."""

from msgspec import Struct

from core.audio import Pcm


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class SilenceEndOfTurn:
    """An `EndOfTurnDetector` that never gives a probability."""

    name = "silence"

    def probability(self, pcm: Pcm) -> float | None:
        """Returns None: not known (see `EndOfTurnDetector.probability`)."""
        return None


def create(settings: Settings) -> SilenceEndOfTurn:
    return SilenceEndOfTurn()
