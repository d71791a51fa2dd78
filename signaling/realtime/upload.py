"""Audio that a client sends as events, as 16 kHz frames for the session."""

import binascii
from base64 import b64decode
from collections.abc import Iterator

from core.audio import ASR_RATE_HZ, AudioFrame, ms_to_samples
from core.errors import RequestError
from media.resample import Resampler
from signaling.realtime.sound import PCM, FormatName, decoded, rate_of

SLICE_MS = 100
"A session keeps 50 frames that it has not heard yet; slices this long make that five seconds."


class Upload:
    """One client's audio, resampled as one stream however it is cut."""

    def __init__(self, format_: FormatName = PCM) -> None:
        self._start = 0
        self._begin(format_)

    def expect(self, format_: FormatName) -> None:
        """What comes from here on is in this format."""
        if format_ != self._format:
            self._begin(format_)

    def push(self, audio: str) -> Iterator[AudioFrame]:
        """Frames of about SLICE_MS. Raises RequestError for what is no such audio."""
        sent = decoded(_bytes(audio), self._format)
        step = ms_to_samples(SLICE_MS, rate_of(self._format))
        for at in range(0, len(sent), step):  # at once, five minutes would take 0.1 s of the loop
            frame = AudioFrame(self._resampler.push(sent[at : at + step]), ASR_RATE_HZ, self._start)
            self._start = frame.end
            yield frame

    def _begin(self, format_: FormatName) -> None:
        self._format = format_
        # Live: what came is heard now, not with the next 20 ms.
        self._resampler = Resampler(rate_of(format_), ASR_RATE_HZ, live=True)


def _bytes(audio: str) -> bytes:
    try:
        return b64decode(audio, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(
            "The audio is not valid base64.", code="invalid_audio", param="audio"
        ) from None
