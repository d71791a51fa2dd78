"""Audio that a client sends as events: base64, s16le, 24 kHz; 16 kHz frames for the session."""

import binascii
from base64 import b64decode
from collections.abc import Iterator

from core.audio import ASR_RATE_HZ, AudioFrame, ms_to_samples
from core.errors import RequestError
from media.pcm import from_bytes
from media.resample import Resampler
from signaling.realtime.session import WIRE_RATE_HZ

SLICE_MS = 100
"A session keeps 50 frames that it has not heard yet; slices this long make that five seconds."


class Upload:
    """One client's audio, resampled as one stream however it is cut."""

    def __init__(self) -> None:
        self._resampler = Resampler(WIRE_RATE_HZ, ASR_RATE_HZ)
        self._start = 0

    def push(self, audio: str) -> Iterator[AudioFrame]:
        """Frames of at most SLICE_MS. Raises RequestError for what is no such audio."""
        pcm = self._resampler.push(from_bytes(_bytes(audio)))
        step = ms_to_samples(SLICE_MS, ASR_RATE_HZ)
        for at in range(0, len(pcm), step):
            frame = AudioFrame(pcm[at : at + step], ASR_RATE_HZ, self._start)
            self._start = frame.end
            yield frame


def _bytes(audio: str) -> bytes:
    try:
        return b64decode(audio, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(
            "The audio is not valid base64.", code="invalid_audio", param="audio"
        ) from None
