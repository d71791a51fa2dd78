"""Microphone and loudspeaker of this machine, through the optional package `sounddevice`."""

import asyncio
from collections.abc import Callable
from threading import Lock
from types import TracebackType
from typing import Any, Self

import numpy as np

from bench.client.latency_probe import AUDIBLE_LEVEL
from bench.client.microphone import FRAME_SAMPLES, RATE_HZ
from core.audio import AudioFrame, Pcm
from core.errors import EarshotError

MAX_QUEUED_SAMPLES = 3 * FRAME_SAMPLES
"""Queue length above which silent frames are dropped. After a network delay, playout catches up
with the server in the silence between two answers."""


class NoSoundCard(EarshotError):
    """The library, the microphone or the loudspeaker is missing or cannot be used."""

    code = "no_sound_card"


class SoundCard:
    """Microphone and loudspeaker, open in a `with` block. Entering raises NoSoundCard.

    PortAudio calls back in a thread of its own. Recorded audio is passed to the event loop, and the
    queue of audio to play is protected by a lock.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_recorded: Callable[[Pcm], None] | None = None
        self._lock = Lock()
        self._queued = np.zeros(0, np.int16)
        self._streams: list[Any] = []

    def __enter__(self) -> Self:
        sounddevice = _library("--mic")
        common: dict[str, Any] = {
            "samplerate": RATE_HZ,
            "channels": 1,
            "dtype": "int16",
            "blocksize": FRAME_SAMPLES,
        }
        try:
            self._streams = [
                sounddevice.InputStream(callback=self._take_recorded, **common),
                sounddevice.OutputStream(callback=self._fill_output, **common),
            ]
            for stream in self._streams:
                stream.start()
        except sounddevice.PortAudioError as error:
            self._close()
            raise NoSoundCard(f"the microphone or loudspeaker cannot be used: {error}") from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._close()

    def listen(self, sink: Callable[[Pcm], None]) -> None:
        """Passes recorded audio, at RATE_HZ, to `sink` in the event loop from now on."""
        self._on_recorded = sink

    def play(self, frame: AudioFrame) -> None:
        """Queues a frame at RATE_HZ. A silent frame is dropped when the queue is too long."""
        with self._lock:
            is_late = len(self._queued) > MAX_QUEUED_SAMPLES
            if is_late and np.abs(frame.pcm.astype(np.int32)).max(initial=0) < AUDIBLE_LEVEL:
                return
            self._queued = np.concatenate([self._queued, frame.pcm])

    def flush(self) -> None:
        """Drops queued audio."""
        with self._lock:
            self._queued = self._queued[:0]

    def _close(self) -> None:
        for stream in self._streams:
            stream.close()

    def _take_recorded(self, data: Any, frames: int, time: Any, status: Any) -> None:
        if self._on_recorded is not None:
            pcm: Pcm = data[:, 0].copy()
            self._loop.call_soon_threadsafe(self._on_recorded, pcm)

    def _fill_output(self, data: Any, frames: int, time: Any, status: Any) -> None:
        with self._lock:
            played, self._queued = self._queued[:frames], self._queued[frames:]
        data[: len(played), 0] = played
        data[len(played) :, 0] = 0


def play_to_end(pcm: Pcm, rate_hz: int) -> None:
    """Plays samples on this machine's loudspeaker and waits for their end. Raises NoSoundCard."""
    sounddevice = _library("a loudspeaker")
    try:
        sounddevice.play(pcm, rate_hz, blocking=True)
    except (sounddevice.PortAudioError, ValueError) as error:  # ValueError: there is no device
        raise NoSoundCard(f"the loudspeaker cannot be used: {error}") from error


def _library(user: str) -> Any:
    """Returns the module `sounddevice`. Raises NoSoundCard with `user` as the subject."""
    try:
        import sounddevice
    except ImportError as error:
        raise NoSoundCard(
            f"{user} needs the package sounddevice: `earshot extras add mic`"
        ) from error
    except OSError as error:  # the Linux wheel does not contain the C library
        raise NoSoundCard(f"{user} needs PortAudio (Debian: libportaudio2): {error}") from error
    return sounddevice
