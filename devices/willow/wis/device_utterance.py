"""Interface to the application server, which knows the device behind a request."""

from typing import Protocol

from aiohttp import web as aioweb

from devices.willow.wis.asr import WisTranscript


class DeviceUtterance(Protocol):
    """One `POST /api/willow` of a known device."""

    @property
    def language(self) -> str:
        """Language that is spoken to the device; empty: not set."""
        ...

    async def should_recognise(self) -> bool:
        """Returns False if another device of the room answers: this one's speech is not
        recognised."""
        ...

    async def take_transcript(self, transcript: WisTranscript) -> bool:
        """Takes the words before they are sent to the device.

        Returns False if another device turned out to be the one that answers: the words are then
        dropped.
        """
        ...

    def end(self) -> None:
        """Ends the utterance: the device has its response, or is gone."""
        ...


class DeviceLookup(Protocol):
    """Finds the device behind a request."""

    def utterance(self, request: aioweb.Request) -> DeviceUtterance | None:
        """Returns the utterance of the device that sent it. None: unknown device; its speech is
        only recognised."""
        ...
