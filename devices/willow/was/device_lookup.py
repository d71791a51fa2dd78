"""Which device a `POST /api/willow` is of, whether it may speak, and what becomes of its words."""

from aiohttp import web as aioweb

from devices.willow.was.door import WasDoor, arrival_of
from devices.willow.was.socket.commands import DeviceCommand
from devices.willow.was.socket.connection import WillowConnection
from devices.willow.wis.asr import WisTranscript


class ConnectedDeviceLookup:
    def __init__(self, door: WasDoor) -> None:
        self._door = door

    def utterance(self, request: aioweb.Request) -> "ConnectedDeviceUtterance | None":
        address = arrival_of(request).address
        found = self._door.roster.speaker(address, request.query, request.headers)
        return ConnectedDeviceUtterance(self._door, found) if found is not None else None


class ConnectedDeviceUtterance:
    """An `Utterance`."""

    def __init__(self, door: WasDoor, connection: WillowConnection) -> None:
        self._door, self._connection = door, connection
        self._command: DeviceCommand | None = None
        self._is_awake = False
        "Its wake word was here before its speech."
        self._is_begun = False
        "It may speak, and has not been heard to the end."

    @property
    def language(self) -> str:
        return self._connection.device.profile.language

    async def may_speak(self) -> bool:
        self._is_awake = self._door.wakes.is_awake(self._connection.device.id)
        if not await self._door.wakes.may_speak(self._connection.device.id):
            return False
        self._is_begun = True
        self._connection.note("listening")
        return True

    async def heard(self, heard: WisTranscript) -> bool:
        """Act on it at once, where the device would only carry the words to us. A wake word that a
        bad Wi-Fi brought after the speech still counts."""
        self._is_begun = False
        device_id, wakes = self._connection.device.id, self._door.wakes
        if not self._is_awake and not await wakes.may_speak(device_id):
            return False
        connection = self._door.roster.find(device_id)
        if connection is not None and connection.is_was_mode and heard.text.strip():
            self._command = self._door.commands.heard(
                connection, heard.text, heard.language, heard.infer_ms
            )
        return True

    def over(self) -> None:
        if self._is_begun:
            self._door.wakes.gave_up(self._connection)
        if self._command is not None:
            self._command.may_tell.set()
        elif self._connection.doing == "listening":
            self._connection.note("idle")
