"""Decodes audio files of common formats to mono PCM, in blocks or at once, and writes WAV files."""

import wave
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import SEEK_END, BytesIO
from pathlib import Path
from typing import BinaryIO, Protocol

import av
import numpy as np
from av import AudioCodecContext, AudioResampler, AudioStream, CodecContext
from av import AudioFrame as AvFrame
from av.container import InputContainer
from av.error import FFmpegError, InvalidDataError, PatchWelcomeError

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from core.errors import PayloadTooLarge, RequestError

FORMATS = (
    "wav,w64,aiff,flac,mp3,ogg,opus,matroska,webm,mov,mp4,m4a,3gp,aac,amr,amrnb,amrwb,au,"
    "caf,nistsphere,mpeg"
)
"""Containers that are opened: those that phones, browsers, recorders and speech corpora write.
FFmpeg also knows playlists, which would open other files and URLs, and some 300 formats that are
not in use. Each is a parser that an attacker could choose."""

CODECS = (
    *("pcm_u8", "pcm_s8", "pcm_s16le", "pcm_s16be", "pcm_s24le", "pcm_s24be", "pcm_s32le"),
    *("pcm_s32be", "pcm_f32le", "pcm_f32be", "pcm_f64le", "pcm_f64be", "pcm_alaw", "pcm_mulaw"),
    *("adpcm_ms", "adpcm_ima_wav", "gsm_ms"),  # WAV files of telephone systems
    *("flac", "alac", "mp2", "mp2float", "mp3", "mp3float", "aac", "vorbis", "opus", "libopus"),
    *("amrnb", "amrwb"),
)
"""Decoders that are run, by FFmpeg's names. They must be listed too, because an allowed container
may hold a stream of any codec."""

CODEC_NAMES = "PCM, FLAC, ALAC, MP2, MP3, AAC, Vorbis, Opus, AMR, A-law, µ-law, ADPCM and GSM"
"The codecs' names for messages to people."

MAX_CHANNELS = 8
"Most channels of a file."
MAX_SOURCE_RATE_HZ = 384_000
"Highest sample rate of a file."
MIN_SOURCE_RATE_HZ = 1_000
"Lowest sample rate of a file."

MAX_FRAME_SAMPLES = 65_536
"Most samples of a decoded frame in each channel. FLAC has the longest frames: 65 535."

MAX_ENTRIES_PER_BYTE = 2
"""Entries that an index may promise per byte of the file. PCM of four bits has two samples in a
byte; packets of all other codecs are longer."""

MAX_PACKETS_PER_BYTE = 1
"""Packets per byte of the file. An honest packet takes at least a byte; one that is read again and
again takes none."""

MAX_BYTES_READ = 2.0
"""Largest size of all packets together, as a multiple of the file's size. Above it the file is read
more than once. Matroska leaves out the beginning of packets that all begin alike, so a little more
than 1 is honest."""

MAX_SILENT_PACKETS = 1_000
"""Most packets in a row that give no audio, because they cannot be decoded or decode to nothing. At
20 ms each this is a gap of 20 s."""

BLOCK_S = 5.0
"""Seconds of audio in a block. Decoding it takes milliseconds, so a caller can stop at any time
without a long wait."""

AudioSource = Path | bytes | BinaryIO
"A path, the file's bytes, or an open file that can seek. The last one is not closed."


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits for one audio file."""

    max_bytes: int = 100 * 1024 * 1024
    "Largest file: three hours of 64 kbit/s speech, or 50 minutes of 16-bit 16 kHz WAV."
    max_duration_s: float = 2 * 3600
    "Longest audio. A small file can hold days of silence."


def decode(
    source: AudioSource, rate_hz: int = ASR_RATE_HZ, limits: FileLimits | None = None
) -> Generator[Pcm, None, None]:
    """Yields the first audio stream as mono s16 at `rate_hz`, in blocks of about BLOCK_S. Blocks
    the thread. Memory does not grow with the length of the file.

    Raises PayloadTooLarge (audio_too_large, audio_too_long), and RequestError (unsupported_audio)
    for a file that is not audio, is empty, has another format, or promises more than it holds. A
    file that is damaged or cut off gives the audio that is there.

    Example:
        for pcm in decode(Path("speech.mp3"), 16_000):     # int16, shape (samples,)
            ...
    """
    limits = limits or FileLimits()
    is_empty = True
    with _opened(source, limits.max_bytes) as (data, size_bytes):
        try:
            with _container(data) as container:
                for pcm in _blocks(container, size_bytes, rate_hz, limits.max_duration_s):
                    is_empty = False
                    yield pcm
        except _REFUSED as exc:
            raise _unsupported(f"cannot decode this file ({_cause(exc)})") from exc
    if is_empty:
        raise _unsupported("the file contains no audio samples")


def decode_file(
    source: AudioSource, rate_hz: int = ASR_RATE_HZ, limits: FileLimits | None = None
) -> Pcm:
    """Returns the whole result of `decode` at once. An hour at 16 kHz takes 115 MB. Raises the same
    errors."""
    return np.concatenate(list(decode(source, rate_hz, limits)))


class FileDecoder(Protocol):
    """Decodes untrusted files where they cannot harm the server. Implemented in
    `serving.workers.file_decoder`."""

    def blocks(
        self, file: BinaryIO, rate_hz: int = ASR_RATE_HZ, limits: FileLimits | None = None
    ) -> AsyncGenerator[Pcm, None]:
        """Yields audio like `decode`, from an open file with a descriptor. Closing the generator
        ends the work.

        Raises OverloadedError when too many files are being decoded, and the errors of `decode`.
        """
        ...


def load_codecs() -> None:
    """Makes the decoders compute their tables, which takes milliseconds for some. Processes that
    are forked later have the tables from the start."""
    for name in CODECS:
        codec = CodecContext.create(name, "r")
        assert isinstance(codec, AudioCodecContext)
        codec.sample_rate, codec.layout = 8_000 if name == "amrnb" else 16_000, "mono"
        with suppress(FFmpegError):  # some cannot be opened without a file's header
            codec.open()


def write_wav(path: Path, frames: Iterable[AudioFrame]) -> None:
    """Writes a 16-bit mono WAV file. Raises ValueError without frames, or when their rate
    changes."""
    audio = list(frames)
    rates = {frame.rate_hz for frame in audio}
    if len(rates) != 1:
        raise ValueError(f"a WAV file has one sample rate, not {sorted(rates)}")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rates.pop())
        file.writeframes(b"".join(frame.pcm.astype("<i2").tobytes() for frame in audio))


_REFUSED = (FFmpegError, ValueError, ArithmeticError, OSError, MemoryError)
"""Errors of FFmpeg, and of its reads of our file, for a bad file. A chunk that is longer than a
file can be makes it seek too far; an index that is too large exhausts the memory."""


@contextmanager
def _opened(source: AudioSource, max_bytes: int) -> Iterator[tuple[BinaryIO, int]]:
    match source:
        case Path():
            with source.open("rb") as data:
                yield data, _checked(data, max_bytes)
        case bytes():
            in_memory = BytesIO(source)
            yield in_memory, _checked(in_memory, max_bytes)
        case _:
            yield source, _checked(source, max_bytes)


def _container(data: BinaryIO) -> InputContainer:
    options = {
        "format_whitelist": FORMATS,
        "codec_whitelist": ",".join(CODECS),
        "max_samples": str(MAX_FRAME_SAMPLES),
    }
    try:
        return av.open(data, "r", options=options)
    except _REFUSED as exc:
        raise _unsupported(
            f"cannot decode this file ({_cause(exc)}); allowed are {FORMATS.replace(',', ', ')}"
        ) from exc


def _checked(data: BinaryIO, max_bytes: int) -> int:
    """Returns the file's size, and moves to its start. Raises PayloadTooLarge."""
    size_bytes = data.seek(0, SEEK_END)
    data.seek(0)
    if size_bytes > max_bytes:
        raise PayloadTooLarge(
            f"audio file of {size_bytes} bytes, limit {max_bytes}", code="audio_too_large"
        )
    return size_bytes


def _blocks(
    container: InputContainer, size_bytes: int, rate_hz: int, max_duration_s: float
) -> Iterator[Pcm]:
    stream = _audio_stream(container, size_bytes)
    max_samples, block_samples = round(max_duration_s * rate_hz), round(BLOCK_S * rate_hz)
    resampler = AudioResampler(format="s16", layout="mono", rate=rate_hz)
    parts: list[Pcm] = []
    total = yielded = 0
    for frame in _frames(container, stream, size_bytes):
        for part in resampler.resample(frame):
            parts.append(part.to_ndarray()[0])
            total += len(parts[-1])
        if total > max_samples:
            raise PayloadTooLarge(
                f"audio of more than {max_duration_s:g} s, the limit", code="audio_too_long"
            )
        if total - yielded >= block_samples:
            yield np.concatenate(parts)
            parts, yielded = [], total
    if total > yielded:
        yield np.concatenate(parts)


def _audio_stream(container: InputContainer, size_bytes: int) -> AudioStream:
    for stream in container.streams:
        if stream.frames > MAX_ENTRIES_PER_BYTE * size_bytes:
            raise _unsupported(
                f"the index promises {stream.frames} entries in a file of {size_bytes} bytes; "
                f"allowed are {MAX_ENTRIES_PER_BYTE} per byte"
            )
    if not container.streams.audio:
        raise _unsupported("the file has no audio stream")
    audio = container.streams.audio[0]
    codec = audio.codec_context
    name = codec.codec.name if codec is not None else "unknown"
    if name not in CODECS:
        raise _unsupported(f"the codec is {name}; allowed are {CODEC_NAMES}")
    codec.options = {"max_samples": str(MAX_FRAME_SAMPLES)}
    codec.thread_count = 1  # enough: decoding is far faster than real time
    return audio


def _frames(
    container: InputContainer, stream: AudioStream, size_bytes: int
) -> Iterator[AvFrame | None]:
    """Yields the decoded frames, then None, which makes the resampler return its rest.

    After the first good frame, damaged packets are skipped: the rest of a recording is worth more
    than nothing.
    """
    any_frame = False
    silent = packets = read_bytes = 0
    for packet in container.demux():  # all streams: packets of the others count for the limits
        if packet.size:
            packets += 1
            read_bytes += packet.size
            _check_packets(packets, read_bytes, size_bytes)
        if packet.stream_index != stream.index:
            continue
        try:
            frames = packet.decode()
        except (InvalidDataError, PatchWelcomeError):
            if not any_frame:
                raise
            frames = []
        silent = 0 if frames else silent + 1
        if silent > MAX_SILENT_PACKETS:
            raise _unsupported(
                f"more than {MAX_SILENT_PACKETS} packets in a row have no sound that can be decoded"
            )
        for frame in frames:
            assert isinstance(frame, AvFrame)
            _check_frame(frame)
            any_frame = True
            frame.pts = None  # with broken timestamps the resampler would insert silence
            yield frame
    if any_frame:
        yield None


def _check_packets(packets: int, read_bytes: int, size_bytes: int) -> None:
    if packets > MAX_PACKETS_PER_BYTE * size_bytes or read_bytes > MAX_BYTES_READ * size_bytes:
        raise _unsupported(
            f"the index names parts of the file again and again: {packets} packets with together"
            f" {read_bytes} bytes in a file of {size_bytes} bytes"
        )


def _check_frame(frame: AvFrame) -> None:
    if not MIN_SOURCE_RATE_HZ <= frame.sample_rate <= MAX_SOURCE_RATE_HZ:
        raise _unsupported(
            f"sample rate {frame.sample_rate} Hz; "
            f"allowed are {MIN_SOURCE_RATE_HZ} to {MAX_SOURCE_RATE_HZ}"
        )
    if not 1 <= frame.layout.nb_channels <= MAX_CHANNELS:
        raise _unsupported(f"{frame.layout.nb_channels} channels; allowed are 1 to {MAX_CHANNELS}")
    if frame.samples > MAX_FRAME_SAMPLES:
        raise _unsupported(
            f"a frame of {frame.samples} samples; allowed are at most {MAX_FRAME_SAMPLES}"
        )


def _unsupported(problem: str) -> RequestError:
    return RequestError(f"unsupported audio: {problem}", code="unsupported_audio")


def _cause(exc: Exception) -> str:
    if isinstance(exc, MemoryError):
        return "it asks for more memory than a file may have"
    if isinstance(exc, OSError):
        return "it points to a position that no file can have"
    text = exc.strerror if isinstance(exc, FFmpegError) else str(exc)
    return (text or type(exc).__name__)[:200]
