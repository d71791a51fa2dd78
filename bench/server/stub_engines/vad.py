"""Voice activity detector that never detects speech, to measure a session without detection."""

from msgspec import Struct

from core.audio import ASR_RATE_HZ, PTIME_MS, Pcm, ms_to_samples
from engines.base import Vad


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    pass


class SilentVad:
    """A `Vad` that never detects speech."""

    frame_samples = ms_to_samples(PTIME_MS, ASR_RATE_HZ)

    def push(self, pcm: Pcm) -> float:
        """See `Vad.push`."""
        return 0.0

    def reset(self) -> None: ...


class SilentVadEngine:
    """A `VadEngine` of `SilentVad`."""

    name = "deaf"

    def open(self) -> Vad:
        return SilentVad()


def create(settings: Settings) -> SilentVadEngine:
    return SilentVadEngine()
