"""Engine for WebRTC's VAD: it takes 2 µs per frame, but mistakes any loud sound for speech."""

from collections import deque
from typing import Annotated, Any

from msgspec import Meta, Struct

from core.audio import ASR_RATE_HZ, Pcm
from engines.base import Vad

REQUIRES = {"webrtcvad": "webrtcvad-wheels"}

FRAME_SAMPLES = 320
"20 ms: our ptime, and one of the lengths that the library takes (10, 20, 30 ms)."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine `webrtc`."""

    aggressiveness: Annotated[int, Meta(ge=0, le=3)] = 2
    "Aggressiveness of the detector, 0 to 3. At 3 the fewest sounds count as speech."
    smoothing_frames: Annotated[int, Meta(ge=1, le=25)] = 5
    "Number of latest frames. The probability is the share of speech among them."


class WebrtcVad:
    """A `Vad` that averages the library's decisions over the latest frames, so that one click does
    not count as speech, and one gap does not end a word."""

    frame_samples = FRAME_SAMPLES

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._recent_decisions: deque[bool] = deque(maxlen=settings.smoothing_frames)
        self.reset()

    def push(self, pcm: Pcm) -> float:
        """Returns the share of speech among the latest frames (see `Vad.push`)."""
        self._recent_decisions.append(self.is_voiced(pcm))
        return sum(self._recent_decisions) / self._settings.smoothing_frames

    def is_voiced(self, pcm: Pcm) -> bool:
        """Returns the library's decision on this frame alone."""
        return bool(self._detector.is_speech(pcm.tobytes(), ASR_RATE_HZ))

    def reset(self) -> None:
        """Clears the state (see `Vad.reset`)."""
        from webrtcvad import Vad as Detector

        self._detector: Any = Detector(self._settings.aggressiveness)
        self._recent_decisions.clear()


class WebrtcVadEngine:
    """A `VadEngine` for `WebrtcVad`."""

    name = "webrtc"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def open(self) -> Vad:
        """Returns a detector for one stream."""
        return WebrtcVad(self._settings)


def create(settings: Settings) -> WebrtcVadEngine:
    """Returns the engine."""
    import webrtcvad  # noqa: F401  a missing library fails now, not in the first session

    return WebrtcVadEngine(settings)
