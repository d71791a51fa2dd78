"""PCM to the audio formats that players read, chunk by chunk, without a file's length."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import av
import numpy as np
from av import AudioFrame as AvFrame
from av.audio.stream import AudioStream

from core.audio import Pcm

UNKNOWN_SIZE = 0xFFFFFFFF
"In a WAV head: until the stream ends, as FFmpeg writes it to a pipe."


HEAD_BYTES = 44
"Of a WAV file as it is written here."


class AudioEncoder(Protocol):
    """Bytes of one stream: `push` samples, then `finish`."""

    content_type: str

    def push(self, pcm: Pcm) -> bytes: ...

    def finish(self) -> bytes: ...


class WavEncoder:
    """16-bit mono; the head comes with the first samples."""

    content_type = "audio/wav"

    def __init__(self, rate_hz: int) -> None:
        self._head = struct.pack(
            "<4sI4s4sIHHIIHH4sI",
            *(b"RIFF", UNKNOWN_SIZE, b"WAVE"),
            *(b"fmt ", 16, 1, 1, rate_hz, 2 * rate_hz, 2, 16),
            *(b"data", UNKNOWN_SIZE),
        )

    def push(self, pcm: Pcm) -> bytes:
        head, self._head = self._head, b""
        return head + pcm.astype("<i2", copy=False).tobytes()

    def finish(self) -> bytes:
        return self.push(np.zeros(0, np.int16))


def fix_wav_sizes(wav: bytes) -> bytes:
    """A whole file of `WavEncoder`, with its true sizes in the head."""
    sound_bytes = len(wav) - HEAD_BYTES
    riff = struct.pack("<I", len(wav) - len(b"RIFF0000"))
    return (
        wav[:4] + riff + wav[8 : HEAD_BYTES - 4] + struct.pack("<I", sound_bytes) + wav[HEAD_BYTES:]
    )


class RawEncoder:
    """16-bit mono, little-endian, without any head."""

    content_type = "audio/pcm"

    def push(self, pcm: Pcm) -> bytes:
        return pcm.astype("<i2", copy=False).tobytes()

    def finish(self) -> bytes:
        return b""


@dataclass(frozen=True, slots=True)
class _EncodedFormat:
    container: str
    codec: str
    content_type: str
    sample_format: str


_OPUS = _EncodedFormat("ogg", "libopus", "audio/ogg", "s16")

_ENCODED: Mapping[str, _EncodedFormat] = {
    "flac": _EncodedFormat("flac", "flac", "audio/flac", "s16"),
    "mp3": _EncodedFormat("mp3", "libmp3lame", "audio/mpeg", "s16p"),
    "ogg": _OPUS,
    "opus": _OPUS,
    "aac": _EncodedFormat("adts", "aac", "audio/aac", "fltp"),
}

RAW = "pcm"
FORMATS = ("wav", *_ENCODED)
"What `open_encoder` takes, beside RAW: files that say themselves what they are."


def open_encoder(kind: str, rate_hz: int) -> AudioEncoder:
    """An encoder of mono PCM of `rate_hz`, which for `ogg` and `opus` is one that Opus knows."""
    if kind == RAW:
        return RawEncoder()
    return WavEncoder(rate_hz) if kind == "wav" else _FfmpegEncoder(_ENCODED[kind], rate_hz)


def content_type_of(kind: str) -> str:
    """Of FORMATS or RAW."""
    if kind == RAW:
        return RawEncoder.content_type
    return WavEncoder.content_type if kind == "wav" else _ENCODED[kind].content_type


class _OutputBuffer:
    """Collects what FFmpeg writes. It cannot seek, so nothing of it is corrected later."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def write(self, data: bytes) -> int:
        self._bytes += data
        return len(data)

    def take(self) -> bytes:
        taken, self._bytes = bytes(self._bytes), bytearray()
        return taken


class _FfmpegEncoder:
    def __init__(self, kind: _EncodedFormat, rate_hz: int) -> None:
        self.content_type = kind.content_type
        self._kind, self._rate_hz = kind, rate_hz
        self._out = _OutputBuffer()
        self._container = av.open(self._out, "w", format=kind.container)
        stream = self._container.add_stream(kind.codec, rate=rate_hz)
        assert isinstance(stream, AudioStream)
        stream.codec_context.layout = "mono"
        stream.codec_context.format = kind.sample_format
        stream.codec_context.thread_count = 1
        self._stream = stream
        self._at = 0

    def push(self, pcm: Pcm) -> bytes:
        if len(pcm):
            # The encoder converts it to the format that its codec takes.
            frame = AvFrame.from_ndarray(pcm.reshape(1, -1), format="s16", layout="mono")
            frame.sample_rate, frame.pts = self._rate_hz, self._at
            self._at += len(pcm)
            self._container.mux(self._stream.encode(frame))
        return self._out.take()

    def finish(self) -> bytes:
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._out.take()
