"""Devices that are known beside their requests: the application server knows who speaks."""

from typing import Protocol

from aiohttp import web as aioweb

from devices.willow.wis.asr import WisTranscript


class DeviceUtterance(Protocol):
    """One `POST /api/willow` of a known device."""

    @property
    def language(self) -> str:
        """In which that device is spoken to; empty: not said."""
        ...

    async def may_speak(self) -> bool:
        """False: another device of the room answers, so this one's speech is not recognised."""
        ...

    async def heard(self, heard: WisTranscript) -> bool:
        """The words, before they are sent to the device. False: another device turned out to be the
        one that answers, so they are nobody's."""
        ...

    def over(self) -> None:
        """The device has its answer, or is gone."""
        ...


class DeviceLookup(Protocol):
    def utterance(self, request: aioweb.Request) -> DeviceUtterance | None:
        """None: nobody knows which device asks; then it is only recognised."""
        ...
