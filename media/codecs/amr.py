"""Decodes AMR and AMR-WB files (RFC 4867 section 5) while they arrive. Small devices send their
speech in these formats."""

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
    """File format of AMR or AMR-WB."""

    magic: bytes
    "First bytes of the file."
    codec: str
    "Name of FFmpeg's decoder."
    rate_hz: int
    speech_bytes: tuple[int, ...]
    "Length of a frame of each speech mode, with its first byte."
    comfort_noise_bytes: int
    """Length of the comfort noise frame, whose type follows the speech modes. It describes how a
    pause sounds."""


_VARIANTS = (
    _AmrVariant(b"#!AMR-WB\n", "amrwb", 16_000, (18, 24, 33, 37, 41, 47, 51, 59, 61), 6),
    _AmrVariant(b"#!AMR\n", "amrnb", 8_000, (13, 14, 16, 18, 20, 21, 27, 32), 6),
)
_LOST, _NO_DATA = 14, 15
"Frame types without a body. The types between comfort noise and these are not in use."


class AmrDecoder:
    """Decodes frames of 20 ms to 16 kHz mono. Pauses, lost and damaged frames become silence; an
    incomplete last frame is left out.

    FFmpeg's own reader is not used, because it takes an incomplete last frame for a damaged file.
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._variant: _AmrVariant | None = None

    def push(self, data: bytes) -> Pcm:
        """Returns the audio that `data` completes, int16 at 16 kHz. Raises RequestError for data
        that is not AMR."""
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
        """Returns the rest. Raises RequestError if the file never began."""
        if self._variant is None:
            raise _unsupported("this is not an AMR file: it must begin with #!AMR or #!AMR-WB")
        return self._resampler.flush()

    def _open(self) -> bool:
        """Reads the file's first bytes. True if they are complete. Raises RequestError if they are
        not AMR's."""
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
            raise _unsupported("this is not an AMR file: it must begin with #!AMR or #!AMR-WB")
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


def _unsupported(problem: str) -> RequestError:
    return RequestError(f"unsupported audio: {problem}", code="unsupported_audio")
