"""A voice activity detector that hears nobody: what is left is what a session costs without one."""

from msgspec import Struct

from core.audio import ASR_RATE_HZ, PTIME_MS, Pcm, ms_to_samples
from engines.base import Vad


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class DeafVad:
    """A `Vad`."""

    frame_samples = ms_to_samples(PTIME_MS, ASR_RATE_HZ)

    def push(self, pcm: Pcm) -> float:
        """See `Vad.push`."""
        return 0.0

    def reset(self) -> None: ...


class DeafVadEngine:
    """A `VadEngine`."""

    name = "deaf"

    def open(self) -> Vad:
        return DeafVad()


def create(settings: Settings) -> DeafVadEngine:
    return DeafVadEngine()
