"""Encodes PCM to the audio formats that players read, chunk by chunk, without knowing the
length."""

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import av
import numpy as np
from av import AudioFrame as AvFrame
from av.audio.stream import AudioStream

from core.audio import Pcm

UNKNOWN_SIZE = 0xFFFFFFFF
'Size in a WAV header that means "until the stream ends", as FFmpeg writes it to a pipe.'


HEAD_BYTES = 44
"Length of the header of our WAV files."


class AudioEncoder(Protocol):
    """Encodes one stream: `push` samples, then `finish`.

    Example:
        encoder = open_encoder("mp3", 24_000)
        data = encoder.push(pcm) + encoder.finish()
    """

    content_type: str
    "Media type of the stream, such as audio/mpeg."

    def push(self, pcm: Pcm) -> bytes:
        """Returns the bytes that are ready after these samples, possibly none. `pcm`: int16,
        mono."""
        ...

    def finish(self) -> bytes:
        """Returns the rest of the stream."""
        ...


class WavEncoder:
    """Encodes 16-bit mono WAV. The header comes with the first samples."""

    content_type = "audio/wav"

    def __init__(self, rate_hz: int) -> None:
        self._head = struct.pack(
            "<4sI4s4sIHHIIHH4sI",
            *(b"RIFF", UNKNOWN_SIZE, b"WAVE"),
            *(b"fmt ", 16, 1, 1, rate_hz, 2 * rate_hz, 2, 16),
            *(b"data", UNKNOWN_SIZE),
        )

    def push(self, pcm: Pcm) -> bytes:
        """See `AudioEncoder.push`."""
        head, self._head = self._head, b""
        return head + pcm.astype("<i2", copy=False).tobytes()

    def finish(self) -> bytes:
        """See `AudioEncoder.finish`."""
        return self.push(np.zeros(0, np.int16))


def fix_wav_sizes(wav: bytes) -> bytes:
    """Writes the true sizes into the header of a complete file from `WavEncoder`. Returns the new
    file."""
    sound_bytes = len(wav) - HEAD_BYTES
    riff = struct.pack("<I", len(wav) - len(b"RIFF0000"))
    return (
        wav[:4] + riff + wav[8 : HEAD_BYTES - 4] + struct.pack("<I", sound_bytes) + wav[HEAD_BYTES:]
    )


class RawEncoder:
    """Encodes 16-bit mono samples, little-endian, without a header."""

    content_type = "audio/pcm"

    def push(self, pcm: Pcm) -> bytes:
        """See `AudioEncoder.push`."""
        return pcm.astype("<i2", copy=False).tobytes()

    def finish(self) -> bytes:
        """See `AudioEncoder.finish`."""
        return b""


@dataclass(frozen=True, slots=True)
class _EncodedFormat:
    """Format that FFmpeg encodes, with FFmpeg's names."""

    container: str
    codec: str
    content_type: str
    sample_format: str
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    "Options of the codec."


_OPUS = _EncodedFormat("ogg", "libopus", "audio/ogg", "s16")

_ENCODED: Mapping[str, _EncodedFormat] = {
    # a quarter of the usual frame, so that a listener gets the first sound after 24 ms, not 96
    "flac": _EncodedFormat("flac", "flac", "audio/flac", "s16", {"frame_size": "1152"}),
    "mp3": _EncodedFormat("mp3", "libmp3lame", "audio/mpeg", "s16p"),
    "ogg": _OPUS,
    "opus": _OPUS,
    "aac": _EncodedFormat("adts", "aac", "audio/aac", "fltp"),
}

RAW = "pcm"
"Name of the format without a header."
FORMATS = ("wav", *_ENCODED)
"Formats that `open_encoder` knows besides RAW: files that state their own format."


def open_encoder(kind: str, rate_hz: int) -> AudioEncoder:
    """Creates an encoder of mono PCM. `kind`: one of FORMATS, or RAW. `rate_hz`: for `ogg` and
    `opus` a rate that Opus knows."""
    if kind == RAW:
        return RawEncoder()
    return WavEncoder(rate_hz) if kind == "wav" else _FfmpegEncoder(_ENCODED[kind], rate_hz)


def content_type_of(kind: str) -> str:
    """Returns the media type of a format. `kind`: one of FORMATS, or RAW."""
    if kind == RAW:
        return RawEncoder.content_type
    return WavEncoder.content_type if kind == "wav" else _ENCODED[kind].content_type


class _OutputBuffer:
    """Collects the output of FFmpeg. It cannot seek, so no byte is corrected later."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def write(self, data: bytes) -> int:
        self._bytes += data
        return len(data)

    def take(self) -> bytes:
        """Returns what was written since the last call."""
        taken, self._bytes = bytes(self._bytes), bytearray()
        return taken


class _FfmpegEncoder:
    """Encodes one stream with FFmpeg."""

    def __init__(self, kind: _EncodedFormat, rate_hz: int) -> None:
        self.content_type = kind.content_type
        self._kind, self._rate_hz = kind, rate_hz
        self._output = _OutputBuffer()
        self._container = av.open(self._output, "w", format=kind.container)
        stream = self._container.add_stream(kind.codec, rate=rate_hz)
        assert isinstance(stream, AudioStream)
        stream.codec_context.layout = "mono"
        stream.codec_context.format = kind.sample_format
        stream.codec_context.thread_count = 1
        stream.codec_context.options = dict(kind.options)
        self._stream = stream
        self._position = 0

    def push(self, pcm: Pcm) -> bytes:
        """See `AudioEncoder.push`."""
        if len(pcm):
            # The encoder converts it to the format that its codec takes.
            frame = AvFrame.from_ndarray(pcm.reshape(1, -1), format="s16", layout="mono")
            frame.sample_rate, frame.pts = self._rate_hz, self._position
            self._position += len(pcm)
            self._container.mux(self._stream.encode(frame))
        return self._output.take()

    def finish(self) -> bytes:
        """See `AudioEncoder.finish`."""
        self._container.mux(self._stream.encode(None))
        self._container.close()
        return self._output.take()
