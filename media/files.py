"""Audio files of any common container to mono PCM, in blocks or at once, and WAV out."""

import wave
from collections.abc import AsyncGenerator, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import SEEK_END, BytesIO
from pathlib import Path
from typing import BinaryIO

import av
import numpy as np
from av import AudioFrame as AvFrame
from av import AudioResampler
from av.container import InputContainer
from av.error import FFmpegError, InvalidDataError, PatchWelcomeError

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from core.errors import RequestError, TooLarge
from core.threads import in_thread

FORMATS = (
    "wav,w64,aiff,flac,mp3,ogg,opus,matroska,webm,mov,mp4,m4a,3gp,aac,ac3,eac3,amr,amrnb,amrwb,au,"
    "caf,nistsphere,asf,ape,wv,tta,voc,mpeg,mpegts,avi,flv"
)
"Containers we open. FFmpeg also knows playlists, which would open other files and URLs."

MAX_CHANNELS = 8
MAX_SOURCE_RATE_HZ = 384_000
MIN_SOURCE_RATE_HZ = 1_000


BLOCK_S = 5.0
"Decoded in one go: milliseconds of work, so that whoever stops is soon done."

Source = Path | bytes | BinaryIO
"A path, the file's bytes, or an open file that can seek; the last stays open."


@dataclass(frozen=True, slots=True)
class FileLimits:
    max_bytes: int = 100 * 1024 * 1024
    "Three hours of 64 kbit/s speech, or 50 minutes of 16-bit 16 kHz WAV."
    max_duration_s: float = 2 * 3600
    "A small file can hold days of silence."


def decode(
    source: Source, rate_hz: int = ASR_RATE_HZ, limits: FileLimits | None = None
) -> Generator[Pcm, None, None]:
    """The first audio stream as mono s16 at `rate_hz`, in blocks of about BLOCK_S. Blocks the
    thread; memory stays the same however long the file is.

    Raises TooLarge (audio_too_large, audio_too_long), RequestError (unsupported_audio: not audio,
    empty, or a container we do not open). A file that is damaged or cut off gives what is there.
    """
    limits = limits or FileLimits()
    is_empty = True
    with _opened(source, limits.max_bytes) as data:
        try:
            with _container(data) as container:
                for pcm in _blocks(container, rate_hz, limits.max_duration_s):
                    is_empty = False
                    yield pcm
        except (FFmpegError, ValueError) as exc:
            raise _unsupported(f"cannot decode this file ({_cause(exc)})") from exc
    if is_empty:
        raise _unsupported("the file contains no audio samples")


def decode_file(
    source: Source, rate_hz: int = ASR_RATE_HZ, limits: FileLimits | None = None
) -> Pcm:
    """All of `decode` at once; an hour is 115 MB."""
    return np.concatenate(list(decode(source, rate_hz, limits)))


async def blocks(
    source: Source, rate_hz: int = ASR_RATE_HZ, limits: FileLimits | None = None
) -> AsyncGenerator[Pcm, None]:
    """`decode` in a thread, one block ahead of nobody: close it, and the thread is done."""
    decoding = decode(source, rate_hz, limits)
    try:
        while (pcm := await in_thread(next, decoding, None)) is not None:
            yield pcm
    finally:
        await in_thread(decoding.close)


def write_wav(path: Path, frames: Iterable[AudioFrame]) -> None:
    """16-bit mono WAV. Raises ValueError without frames, or when their rate changes."""
    audio = list(frames)
    rates = {frame.rate_hz for frame in audio}
    if len(rates) != 1:
        raise ValueError(f"a WAV file has one sample rate, not {sorted(rates)}")
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rates.pop())
        file.writeframes(b"".join(frame.pcm.astype("<i2").tobytes() for frame in audio))


@contextmanager
def _opened(source: Source, max_bytes: int) -> Iterator[BinaryIO]:
    match source:
        case Path():
            with source.open("rb") as data:
                yield _checked(data, max_bytes)
        case bytes():
            yield _checked(BytesIO(source), max_bytes)
        case _:
            yield _checked(source, max_bytes)


def _container(data: BinaryIO) -> InputContainer:
    try:
        return av.open(data, "r", options={"format_whitelist": FORMATS})
    except (FFmpegError, ValueError) as exc:
        raise _unsupported(
            f"cannot decode this file ({_cause(exc)}); allowed are {FORMATS.replace(',', ', ')}"
        ) from exc


def _checked(data: BinaryIO, max_bytes: int) -> BinaryIO:
    size = data.seek(0, SEEK_END)
    data.seek(0)
    if size > max_bytes:
        raise TooLarge(f"audio file of {size} bytes, limit {max_bytes}", code="audio_too_large")
    return data


def _blocks(container: InputContainer, rate_hz: int, max_duration_s: float) -> Iterator[Pcm]:
    if not container.streams.audio:
        raise _unsupported("the file has no audio stream")
    limit, step = round(max_duration_s * rate_hz), round(BLOCK_S * rate_hz)
    resampler = AudioResampler(format="s16", layout="mono", rate=rate_hz)
    parts: list[Pcm] = []
    total = given = 0
    for frame in _frames(container):
        for part in resampler.resample(frame):
            parts.append(part.to_ndarray()[0])
            total += len(parts[-1])
        if total > limit:
            raise TooLarge(
                f"audio of more than {max_duration_s:g} s, the limit", code="audio_too_long"
            )
        if total - given >= step:
            yield np.concatenate(parts)
            parts, given = [], total
    if total > given:
        yield np.concatenate(parts)


def _frames(container: InputContainer) -> Iterator[AvFrame | None]:
    """Decoded frames, then None for the resampler to give its rest. Once it has been understood,
    what is damaged is passed over: the rest of a recording is worth more than none."""
    any_frame = False
    for packet in container.demux(container.streams.audio[0]):
        try:
            frames = packet.decode()
        except (InvalidDataError, PatchWelcomeError):
            if not any_frame:
                raise
            continue
        for frame in frames:
            if not any_frame:
                _check_format(frame)
            any_frame = True
            frame.pts = None  # with broken timestamps the resampler would insert silence
            yield frame
    if any_frame:
        yield None


def _check_format(frame: AvFrame) -> None:
    if not MIN_SOURCE_RATE_HZ <= frame.sample_rate <= MAX_SOURCE_RATE_HZ:
        raise _unsupported(
            f"sample rate {frame.sample_rate} Hz; "
            f"allowed are {MIN_SOURCE_RATE_HZ} to {MAX_SOURCE_RATE_HZ}"
        )
    if not 1 <= frame.layout.nb_channels <= MAX_CHANNELS:
        raise _unsupported(f"{frame.layout.nb_channels} channels; allowed are 1 to {MAX_CHANNELS}")


def _unsupported(what: str) -> RequestError:
    return RequestError(f"unsupported audio: {what}", code="unsupported_audio")


def _cause(exc: FFmpegError | ValueError) -> str:
    text = exc.strerror if isinstance(exc, FFmpegError) else str(exc)
    return (text or type(exc).__name__)[:200]
