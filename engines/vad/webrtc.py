"""WebRTC's voice activity detector: 2 µs per frame, but any loud sound passes for speech."""

from collections import deque
from typing import Annotated, Any

from msgspec import Meta, Struct

from core.audio import ASR_RATE_HZ, Pcm
from engines.base import Vad

REQUIRES = {"webrtcvad": "webrtcvad-wheels"}

FRAME_SAMPLES = 320
"20 ms: of the lengths that the library takes (10, 20, 30 ms), our ptime."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    aggressiveness: Annotated[int, Meta(ge=0, le=3)] = 2
    "3 calls the least sounds speech."
    smoothing_frames: Annotated[int, Meta(ge=1, le=25)] = 5
    "The probability is the share of speech among this many last frames."


class WebrtcVad:
    """A `Vad`. The library only says yes or no: the probability is the share of yes among the last
    frames, so that one click does not count and one gap does not end a word."""

    frame_samples = FRAME_SAMPLES

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._recent: deque[bool] = deque(maxlen=settings.smoothing_frames)
        self.reset()

    def push(self, pcm: Pcm) -> float:
        """See `Vad.push`."""
        self._recent.append(self.is_voiced(pcm))
        return sum(self._recent) / self._settings.smoothing_frames

    def is_voiced(self, pcm: Pcm) -> bool:
        """What the library says of this frame alone."""
        return bool(self._detector.is_speech(pcm.tobytes(), ASR_RATE_HZ))

    def reset(self) -> None:
        """See `Vad.reset`."""
        from webrtcvad import Vad as Detector

        self._detector: Any = Detector(self._settings.aggressiveness)
        self._recent.clear()


class WebrtcVadEngine:
    """A `VadEngine`."""

    name = "webrtc"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def open(self) -> Vad:
        return WebrtcVad(self._settings)


def create(settings: Settings) -> WebrtcVadEngine:
    import webrtcvad  # noqa: F401  a missing library shows now, not in the first session

    return WebrtcVadEngine(settings)
