"""Sounds that devices fetch over HTTP, while they are still being made.

A path that nobody can guess is all that guards a sound: a device sends no key. Firmware may fetch
one sound several times, so all of it is kept until its owner closes it.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass

import numpy as np
from aiohttp import web as aioweb

from core.audio import Pcm, samples_to_ms
from core.errors import NotFound
from core.ports import Clock
from media.files.encode import content_type_of, open_encoder
from media.resample import Resampler

PATH = "/esphome/sounds"

MAX_BYTES = 32 * 1024 * 1024
"Most bytes of one sound: eleven minutes of WAV at 24 kHz. What is longer is cut."

TOKEN_BYTES = 24

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SoundFormat:
    """Format of the sounds that a device plays."""

    kind: str = "wav"
    "wav or flac."
    rate_hz: int = 24_000


DEFAULT_FORMAT = SoundFormat()
"For devices that name no format. Every one of them decodes WAV."

PLAYABLE = ("flac", "wav")
"Formats that we make, of those that devices name. Others cost 50 times as much to encode."


def choose_format(formats: Sequence[tuple[str, int, bool]]) -> SoundFormat:
    """Chooses from the formats that a device names: (name, rate in Hz, is for announcements).

    Formats for announcements come first, in the device's order. Rate 0 means any.
    """
    known = [one for one in formats if one[0] in PLAYABLE]
    for name, rate_hz, _ in sorted(known, key=lambda one: not one[2]):
        return SoundFormat(name, rate_hz or DEFAULT_FORMAT.rate_hz)
    return DEFAULT_FORMAT


class Sound:
    """One sound: written once, fetched any number of times, also before it is complete."""

    def __init__(self, name: str, clock: Clock) -> None:
        self.name = name
        "Last part of its path. The ending tells firmware which decoder to use."
        self.fetched_at: float | None = None
        "Monotonic seconds of the first request; None: it was not fetched yet."
        self._clock = clock
        self._chunks: list[bytes] = []
        self._size_bytes = 0
        self._is_complete = self._is_closed = False
        self._changed = asyncio.Event()

    @property
    def size_bytes(self) -> int:
        """Bytes that were written."""
        return self._size_bytes

    def write(self, data: bytes) -> None:
        """Adds bytes. What is beyond MAX_BYTES is left out."""
        if data and self._size_bytes + len(data) <= MAX_BYTES:
            self._chunks.append(data)
            self._size_bytes += len(data)
            self._note_change()

    def complete(self) -> None:
        """Ends it: a fetch ends when all was sent."""
        self._is_complete = True
        self._note_change()

    def close(self) -> None:
        """Ends every fetch at once: the rest is not to be played."""
        self._is_closed = True
        self._note_change()

    async def has_started(self) -> bool:
        """Waits for the first bytes. Returns False if it ended without any."""
        while not (self._chunks or self._is_complete or self._is_closed):
            await self._changed.wait()
        return bool(self._chunks)

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yields all bytes from the beginning, and waits for those that are not made yet."""
        if self.fetched_at is None:
            self.fetched_at = self._clock.now()
        position = 0
        while not self._is_closed:
            if position < len(self._chunks):
                position += 1
                yield self._chunks[position - 1]
            elif self._is_complete:
                return
            else:
                await self._changed.wait()

    def _note_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class SoundWriter:
    """Writes samples of one rate to a sound, in a device's format."""

    def __init__(self, sound: Sound, rate_hz: int, to: SoundFormat) -> None:
        self.audio_ms = 0.0
        "Length of the sound so far."
        self._sound, self._rate_hz = sound, rate_hz
        self._resampler = Resampler(rate_hz, to.rate_hz)
        self._encoder = open_encoder(to.kind, to.rate_hz)

    def write(self, pcm: Pcm) -> None:
        """Adds samples. They cost some milliseconds of a core for each second of sound."""
        self.audio_ms += samples_to_ms(len(pcm), self._rate_hz)
        self._sound.write(self._encoder.push(self._resampler.push(pcm)))

    def complete(self) -> None:
        """Ends the sound."""
        self._sound.write(self._encoder.push(self._resampler.flush()) + self._encoder.finish())
        self._sound.complete()


class Sounds:
    """All sounds that devices may fetch now."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._sounds: dict[str, Sound] = {}

    @property
    def count(self) -> int:
        """Number of sounds that are kept."""
        return len(self._sounds)

    def open(self, kind: str) -> Sound:
        """Returns a new sound, which can be fetched until `drop`. kind: its file format."""
        sound = Sound(f"{secrets.token_urlsafe(TOKEN_BYTES)}.{kind}", self._clock)
        self._sounds[sound.name] = sound
        return sound

    def drop(self, sound: Sound) -> None:
        """Ends its fetches and forgets it."""
        sound.close()
        self._sounds.pop(sound.name, None)

    async def send(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `GET /esphome/sounds/{name}`. Raises NotFound."""
        sound = self._sounds.get(request.match_info["name"])
        if sound is None:
            raise NotFound("there is no such sound, or it is over", code="sound_not_found")
        # Firmware compares this header as a whole, so it must have no parameters.
        content_type = content_type_of(sound.name.rpartition(".")[2])
        response = aioweb.StreamResponse(
            headers={"Content-Type": content_type, "Cache-Control": "no-store"}
        )
        await response.prepare(request)
        try:
            async for chunk in sound.chunks():
                await response.write(chunk)
            await response.write_eof()
        except ConnectionError:
            logger.debug("= a device stopped fetching a sound")
        return response


# The chime before an announcement.

CHIME_HZ = (880, 1175)
"A fourth upwards: attention, but no alarm."

CHIME_NOTE_MS = 180


def chime(to: SoundFormat) -> bytes:
    """Returns the sound before announcements, as a file in this format."""
    encoder, samples = open_encoder(to.kind, to.rate_hz), to.rate_hz * CHIME_NOTE_MS // 1000
    time_s = np.arange(samples) / to.rate_hz
    fade = np.exp(-time_s * 14) * np.minimum(1, time_s / 0.005)
    notes = [8000 * fade * np.sin(2 * np.pi * hz * time_s) for hz in CHIME_HZ]
    return encoder.push(np.concatenate(notes).astype(np.int16)) + encoder.finish()
