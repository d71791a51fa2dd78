"""Decodes plain samples, with a WAV header or without, while they arrive. The result is 16 kHz
mono."""

import struct
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from core.audio import ASR_RATE_HZ, Pcm
from core.errors import RequestError
from media.resample import Resampler

BITS = (16, 24, 32)
"Sample widths in bits that are accepted, little-endian and signed."

MAX_WAV_HEAD_BYTES = 64 * 1024
"Largest header. There may be tags before the samples; a file with more of them is left to FFmpeg."

_PCM, _EXTENSIBLE = 1, 0xFFFE
"Format codes of a WAV header for plain samples."


class AudioByteDecoder(Protocol):
    """Decodes audio from bytes in any split."""

    def push(self, data: bytes) -> Pcm:
        """Returns the audio that `data` completes, int16, 16 kHz, mono. Raises RequestError
        (unsupported_audio)."""
        ...

    def flush(self) -> Pcm:
        """Returns the rest. An incomplete sample or frame is left out."""
        ...


class RawDecoder:
    """Decodes interleaved samples of one of BITS, and mixes them to mono.

    Example:
        decoder = RawDecoder(48_000, bits=16, channels=2)
        pcm = decoder.push(data)            # int16, 16 kHz, mono
    """

    def __init__(self, rate_hz: int, bits: int, channels: int) -> None:
        self._bits, self._channels = bits, channels
        self._resampler = Resampler(rate_hz, ASR_RATE_HZ)
        self._partial_sample = b""

    def push(self, data: bytes) -> Pcm:
        """See `AudioByteDecoder.push`."""
        data = self._partial_sample + data
        whole = len(data) - len(data) % (self._bits // 8 * self._channels)
        self._partial_sample = data[whole:]
        samples = _s16(data[:whole], self._bits)
        if self._channels > 1:
            mixed = samples.reshape(-1, self._channels).astype(np.int32).sum(axis=1)
            samples = (mixed // self._channels).astype(np.int16)
        return self._resampler.push(samples)

    def flush(self) -> Pcm:
        """See `AudioByteDecoder.flush`."""
        self._partial_sample = b""
        return self._resampler.flush()


def _s16(data: bytes, bits: int) -> npt.NDArray[np.int16]:
    """Returns the upper 16 bits of each sample."""
    if bits == 24:
        # Of each sample's three bytes, the upper two are its 16-bit value.
        return np.frombuffer(data, np.uint8).reshape(-1, 3)[:, 1:].copy().view("<i2")[:, 0]
    if bits == 32:
        return np.frombuffer(data, "<i2")[1::2].astype(np.int16)
    return np.frombuffer(data, "<i2").astype(np.int16)


@dataclass(frozen=True, slots=True)
class WavHead:
    """Position and format of the samples in a WAV file."""

    rate_hz: int
    bits: int
    "Width of a sample."
    channels: int
    offset: int
    "Position of the first sample, in bytes."
    size_bytes: int | None
    """Size of the samples; None: until the end of the file, because the writer of a stream does not
    know it."""


def read_wav_head(data: bytes) -> WavHead | None:
    """Reads the header; returns None while more bytes are needed. Raises UnsupportedWavError for a
    file that only FFmpeg can read."""
    if len(data) < 12:
        return None
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise UnsupportedWavError
    position, format_chunk = 12, None
    while len(data) >= position + 8:
        name = data[position : position + 4]
        size = struct.unpack_from("<I", data, position + 4)[0]
        position += 8
        if name == b"data":
            return _head(format_chunk, position, size)
        if name == b"fmt ":
            if len(data) < position + min(size, 40):
                return None
            format_chunk = data[position : position + min(size, 40)]
        position += size + size % 2
    if position > MAX_WAV_HEAD_BYTES:
        raise UnsupportedWavError
    return None


class UnsupportedWavError(Exception):
    """The file is not a WAV file of plain samples."""


def _head(format_chunk: bytes | None, offset: int, size_bytes: int) -> WavHead:
    """Returns the header. Raises UnsupportedWavError for samples that are not plain."""
    if format_chunk is None or len(format_chunk) < 16:
        raise UnsupportedWavError
    kind, channels, rate_hz, _, _, bits = struct.unpack_from("<HHIIHH", format_chunk)
    if kind == _EXTENSIBLE and len(format_chunk) >= 26:
        kind = struct.unpack_from("<H", format_chunk, 24)[0]
    is_plain = kind == _PCM and bits in BITS and 1 <= channels <= 8 and 1000 <= rate_hz <= 384_000
    if not is_plain:
        raise UnsupportedWavError
    is_known = 0 < size_bytes < 0x7FFFFFFF  # a stream's writer leaves 0 or a huge number
    return WavHead(rate_hz, bits, channels, offset, size_bytes if is_known else None)


class WavDecoder:
    """Decodes a WAV file of plain samples while it arrives. Raises UnsupportedWavError; the bytes
    so far are then in `consumed`."""

    def __init__(self) -> None:
        self.consumed = bytearray()
        "Bytes that came before the header was complete."
        self._samples: RawDecoder | None = None
        self._left: int | None = None
        "Bytes of samples that are still to come; None if their number is not known."

    def push(self, data: bytes) -> Pcm:
        """See `AudioByteDecoder.push`. Raises UnsupportedWavError, too."""
        if self._samples is None:
            self.consumed += data
            head = read_wav_head(bytes(self.consumed))
            if head is None:
                return np.zeros(0, np.int16)
            data = bytes(self.consumed[head.offset :])
            self._samples = RawDecoder(head.rate_hz, head.bits, head.channels)
            self._left = head.size_bytes
        if self._left is not None:
            data = data[: self._left]
            self._left -= len(data)
        return self._samples.push(data)

    def flush(self) -> Pcm:
        """See `AudioByteDecoder.flush`. Raises RequestError if the file ended within its header."""
        if self._samples is None:
            raise RequestError(
                "unsupported audio: this WAV file ends before its samples", code="unsupported_audio"
            )
        return self._samples.flush()
