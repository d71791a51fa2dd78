"""Audio files of any common container to mono PCM, and WAV out."""

import wave
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import av
import numpy as np
from av import AudioFrame as AvFrame
from av import AudioResampler
from av.container import InputContainer
from av.error import FFmpegError

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from core.errors import RequestError, TooLarge

FORMATS = (
    "wav,w64,aiff,flac,mp3,ogg,opus,matroska,webm,mov,mp4,m4a,3gp,aac,ac3,amr,amrnb,amrwb,au,caf,"
    "nistsphere,asf,ape,wv,mpegts"
)
"Containers we open. FFmpeg also knows playlists, which would open other files and URLs."

MAX_CHANNELS = 8
MAX_SOURCE_RATE_HZ = 384_000
MIN_SOURCE_RATE_HZ = 1_000


@dataclass(frozen=True, slots=True)
class FileLimits:
    max_bytes: int = 100 * 1024 * 1024
    "Three hours of 64 kbit/s speech, or 50 minutes of 16-bit 16 kHz WAV."
    max_duration_s: float = 2 * 3600
    "Decoded audio lies in memory: 230 MB at 16 kHz."


def decode_file(
    source: Path | bytes, rate_hz: int = ASR_RATE_HZ, limits: FileLimits | None = None
) -> Pcm:
    """The first audio stream as mono s16 at `rate_hz`. Blocks: run it in a thread.

    Raises TooLarge (audio_too_large, audio_too_long), RequestError (unsupported_audio: not audio,
    damaged, empty, or a container we do not open). A file that was cut off gives what is there.
    """
    limits = limits or FileLimits()
    size = len(source) if isinstance(source, bytes) else source.stat().st_size
    if size > limits.max_bytes:
        raise TooLarge(
            f"audio file of {size} bytes, limit {limits.max_bytes}", code="audio_too_large"
        )
    data = BytesIO(source) if isinstance(source, bytes) else source.open("rb")
    with data:
        try:
            with av.open(data, "r", options={"format_whitelist": FORMATS}) as container:
                pcm = _decoded(container, rate_hz, limits.max_duration_s)
        except (FFmpegError, ValueError) as exc:
            raise _unsupported(f"cannot decode this file ({_cause(exc)})") from exc
    if not len(pcm):
        raise _unsupported("the file contains no audio samples")
    return pcm


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


def _decoded(container: InputContainer, rate_hz: int, max_duration_s: float) -> Pcm:
    if not container.streams.audio:
        raise _unsupported("the file has no audio stream")
    limit = round(max_duration_s * rate_hz)
    resampler = AudioResampler(format="s16", layout="mono", rate=rate_hz)
    parts: list[Pcm] = []
    total = 0
    for frame in _frames(container):
        for part in resampler.resample(frame):
            parts.append(part.to_ndarray()[0])
            total += len(parts[-1])
        if total > limit:
            raise TooLarge(
                f"audio of more than {max_duration_s:g} s, the limit", code="audio_too_long"
            )
    return np.concatenate(parts) if parts else np.zeros(0, np.int16)


def _frames(container: InputContainer) -> Iterator[AvFrame | None]:
    """Decoded frames, then None for the resampler to give its rest."""
    any_frame = False
    for frame in container.decode(container.streams.audio[0]):
        if not any_frame:
            _check_format(frame)
        any_frame = True
        frame.pts = None  # files with broken timestamps would make the resampler insert silence
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
