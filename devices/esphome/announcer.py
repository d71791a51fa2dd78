"""Announcements on one satellite: a chime, a text that is spoken, and whether it listens then."""

import asyncio
import math
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioesphomeapi.client import APIClient
from aioesphomeapi.core import APIConnectionError

from core.errors import EarshotError, expected_failure, first_error
from devices.esphome.link import SatelliteAbilities
from devices.esphome.sounds import Sound, SoundFormat, chime
from devices.fleet.directory import Device
from devices.fleet.presence import DeviceNotification
from firmware_protocol.esphome.voice_run import MAX_TEXT_CHARS
from pipeline.shared.settings import DEFAULT, SessionSettings
from pipeline.speech.file import SpeechFileOptions
from pipeline.speech.requested_text import RequestedText

if TYPE_CHECKING:
    from devices.esphome.connection import EspHomeServices

ANNOUNCE_LIMIT_S = 300.0
"Longest announcement."

QUESTION_S = 10.0
"""Longest time from the end of an announcement to the run that it starts. A satellite needs half a
second; a busy network some more."""


@dataclass(slots=True)
class _AnnouncedQuestion:
    """The words of an announcement after which the device begins to listen by itself. The next run
    answers them, so the assistant has to know them."""

    text: str = ""
    until: float = math.inf
    "Monotonic seconds after which a run has another reason."

    def take(self, now: float) -> str:
        """Returns the words if they are fresh, and forgets them."""
        text, self.text = self.text, ""
        return text if now <= self.until else ""


class SatelliteAnnouncer:
    """Plays announcements on one satellite, one at a time."""

    def __init__(
        self,
        client: APIClient,
        device: Device,
        abilities: SatelliteAbilities,
        services: "EspHomeServices",
        settings: Callable[[], SessionSettings],
        sound_format: SoundFormat,
        url_of: Callable[[Sound], str],
    ) -> None:
        """settings: returns those of a session. url_of: returns the address of a sound for the
        device."""
        self._client, self._device, self._abilities = client, device, abilities
        self._services, self._settings = services, settings
        self._format, self._url_of = sound_format, url_of
        self.is_announcing = False
        self._announced: Sound | None = None
        "Sound of the announcement that is made or played."
        self._question = _AnnouncedQuestion()

    async def announce(self, tasks: asyncio.TaskGroup, notice: DeviceNotification) -> bool:
        """Begins an announcement. Returns True as soon as the device is told to play it."""
        started = asyncio.get_running_loop().create_future()
        self.is_announcing = True
        tasks.create_task(self._announce(notice, started), name="esphome-announcement")
        return bool(await started)

    def close_sound(self) -> bool:
        """Ends the sound of the announcement; returns False if there is none."""
        if self._announced is None:
            return False
        self._announced.close()
        return True

    def take_question(self) -> str:
        """Returns the words of an announcement that the next run answers, and forgets them; empty
        if there are none."""
        return self._question.take(self._services.clock.now())

    async def _announce(self, notice: DeviceNotification, started: "asyncio.Future[bool]") -> None:
        """Plays an announcement. started: gets True as soon as the device is told to play it."""
        kind, sounds = self._format.kind, self._services.sounds
        self._announced = sound = sounds.open(kind)
        bell = sounds.open(kind)
        starts = notice.starts_conversation and self._abilities.can_be_started
        try:
            try:
                async with asyncio.TaskGroup() as tasks:
                    reading = tasks.create_task(self._read(notice, sound))
                    # Firmware waits 2 s for the first sound, so there must be some.
                    if not await sound.has_started():
                        return
                    bell.write(chime(self._format))
                    bell.complete()
                    if not started.done():
                        started.set_result(True)
                    if starts:
                        self._question = _AnnouncedQuestion(notice.text)
                    await self._client.send_voice_assistant_announcement_await_response(
                        self._url_of(sound),
                        ANNOUNCE_LIMIT_S,
                        notice.text[:MAX_TEXT_CHARS],
                        self._url_of(bell),
                        starts,
                    )
                    reading.cancel()  # it may have been stopped on the device
            finally:
                sounds.drop(sound)
                sounds.drop(bell)
                self._question.until = self._services.clock.now() + QUESTION_S
        except* (EarshotError, APIConnectionError) as errors:
            failure = expected_failure(first_error(errors))
            code = "announcement_failed" if failure is None else failure.code
            self._services.presence.note_error(self._device.id, code)
        finally:
            self.is_announcing, self._announced = False, None
            if not started.done():
                started.set_result(False)
            self._services.presence.note_change()

    async def _read(self, notice: DeviceNotification, sound: Sound) -> None:
        """Speaks an announcement into a sound. Raises EarshotError."""
        settings = self._settings()
        voice = notice.voice or settings.voice
        options = SpeechFileOptions(
            notice.language or settings.language or self._services.language,
            None if voice == DEFAULT else voice,
            settings.speed,
        )
        file = self._services.speech_files.file(
            RequestedText.of(notice.text), options, self._format.kind, self._format.rate_hz
        )
        try:
            async with aclosing(file.chunks()) as chunks:
                async for chunk in chunks:
                    sound.write(chunk)
        finally:
            sound.complete()
