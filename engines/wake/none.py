"""Engine without wake words: sessions listen all the time."""

from collections.abc import Sequence

from msgspec import Struct

from core.errors import ConfigError
from engines.base.wake import WakeWord, WakeWordDetector


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine `none`: there are none."""


class NoWakeWordEngine:
    """A `WakeWordEngine` without words; `open` raises ConfigError."""

    name = "none"
    words: tuple[WakeWord, ...] = ()

    def open(self, names: Sequence[str]) -> WakeWordDetector:
        """Raises ConfigError: there are no words to detect."""
        raise ConfigError("wake: this engine has no wake words")


def create(settings: Settings) -> NoWakeWordEngine:
    """Returns the engine."""
    return NoWakeWordEngine()
