"""Knows nothing of how a sentence ends: a turn is over after the usual silence."""

from msgspec import Struct

from core.audio import Pcm


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class SilenceEndOfTurn:
    """An `EndOfTurn`."""

    name = "silence"

    def probability(self, pcm: Pcm) -> float | None:
        """See `EndOfTurn.probability`."""
        return None


def create(settings: Settings) -> SilenceEndOfTurn:
    return SilenceEndOfTurn()
