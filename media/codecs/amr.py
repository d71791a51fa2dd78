"""AMR and AMR-WB files (RFC 4867 section 5) as they arrive: small devices send their speech so."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from av import AudioCodecContext, AudioFrame, CodecContext, Packet
from av.error import FFmpegError

from core.audio import ASR_RATE_HZ, PTIME_MS, Pcm, ms_to_samples
from core.errors import RequestError
from media.resample import Resampler

_EMPTY = np.zeros(0, np.int16)


@dataclass(frozen=True, slots=True)
class _AmrVariant:
    magic: bytes
    codec: str
    rate_hz: int
    speech_bytes: tuple[int, ...]
    "Of a frame of each speech mode, with its first byte."
    comfort_noise_bytes: int
    "Of the frame after the speech modes: how the pause sounds."


_VARIANTS = (
    _AmrVariant(b"#!AMR-WB\n", "amrwb", 16_000, (18, 24, 33, 37, 41, 47, 51, 59, 61), 6),
    _AmrVariant(b"#!AMR\n", "amrnb", 8_000, (13, 14, 16, 18, 20, 21, 27, 32), 6),
)
_LOST, _NO_DATA = 14, 15
"Frame types without a body. What lies between them and comfort noise is not in use."


class AmrDecoder:
    """Frames of 20 ms. Pauses, lost and damaged frames are silence; a cut last frame is left out.

    FFmpeg's own reader takes a cut last frame for a damaged file.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._variant: _AmrVariant | None = None

    def push(self, data: bytes) -> Pcm:
        self._bytes += data
        if self._variant is None and not self._open():
            return _EMPTY
        parts = [_EMPTY]
        while self._bytes:
            size = self._frame_bytes(self._bytes[0] >> 3 & 15)
            if len(self._bytes) < size:
                break
            parts.append(self._decoded(bytes(self._bytes[:size])))
            del self._bytes[:size]
        return self._resampler.push(np.concatenate(parts))

    def flush(self) -> Pcm:
        if self._variant is None:
            raise _unsupported("this is no AMR file: it must begin with #!AMR or #!AMR-WB")
        return self._resampler.flush()

    def _open(self) -> bool:
        """Whether the magic is complete."""
        for variant in _VARIANTS:
            if self._bytes.startswith(variant.magic):
                del self._bytes[: len(variant.magic)]
                self._variant = variant
                codec = CodecContext.create(variant.codec, "r")
                assert isinstance(codec, AudioCodecContext)
                codec.sample_rate, codec.layout = variant.rate_hz, "mono"
                self._codec = codec
                self._resampler = Resampler(variant.rate_hz, ASR_RATE_HZ)
                return True
        if not any(variant.magic.startswith(self._bytes) for variant in _VARIANTS):
            raise _unsupported("this is no AMR file: it must begin with #!AMR or #!AMR-WB")
        return False

    def _frame_bytes(self, kind: int) -> int:
        assert self._variant is not None
        modes = self._variant.speech_bytes
        if kind < len(modes):
            return modes[kind]
        if kind == len(modes):
            return self._variant.comfort_noise_bytes
        if kind in (_LOST, _NO_DATA):
            return 1
        raise _unsupported(f"this AMR file is damaged: a frame of type {kind}")

    def _decoded(self, frame: bytes) -> Pcm:
        assert self._variant is not None
        if frame[0] >> 3 & 15 < len(self._variant.speech_bytes):
            try:
                found = [_s16(part) for part in self._codec.decode(Packet(frame))]
            except FFmpegError:
                found = []
            if found:
                return np.concatenate(found)
        return np.zeros(ms_to_samples(PTIME_MS, self._variant.rate_hz), np.int16)


def _s16(frame: AudioFrame) -> Pcm:
    samples: npt.NDArray[np.float32] = frame.to_ndarray()[0]
    return np.clip(samples * 32768, -32768, 32767).astype(np.int16)


def _unsupported(what: str) -> RequestError:
    return RequestError(f"unsupported audio: {what}", code="unsupported_audio")
