"""Finds the device behind a `POST /api/willow`, decides whether it may speak, and runs its
command."""

from aiohttp import web as aioweb

from devices.willow.was.door import WasDoor, socket_origin
from devices.willow.was.socket.commands import DeviceCommand
from devices.willow.was.socket.connection import WillowConnection
from devices.willow.wis.asr import WisTranscript


class ConnectedDeviceLookup:
    """Implements `DeviceLookup` with the connected devices."""

    def __init__(self, door: WasDoor) -> None:
        self._door = door

    def utterance(self, request: aioweb.Request) -> "ConnectedDeviceUtterance | None":
        address = socket_origin(request).address
        found = self._door.connected_devices.sender(address, request.query, request.headers)
        return ConnectedDeviceUtterance(self._door, found) if found is not None else None


class ConnectedDeviceUtterance:
    """Implements `DeviceUtterance` for one request of a connected device."""

    def __init__(self, door: WasDoor, connection: WillowConnection) -> None:
        self._door, self._connection = door, connection
        self._command: DeviceCommand | None = None
        self._is_awake = False
        "True: the device reported a wake word before its speech."
        self._is_begun = False
        "True: the device may speak, and its speech is not recognised yet."

    @property
    def language(self) -> str:
        return self._connection.device.profile.language

    async def should_recognise(self) -> bool:
        """Waits for the arbitration; see `DeviceUtterance`."""
        self._is_awake = self._door.wake_words.is_awake(self._connection.device.id)
        if not await self._door.wake_words.should_recognise(self._connection.device.id):
            return False
        self._is_begun = True
        self._connection.set_activity("listening")
        return True

    async def take_transcript(self, transcript: WisTranscript) -> bool:
        """Runs the words as a command at once, in was_mode; see `DeviceUtterance`.

        Otherwise the device would only send the words back to us. A wake word that arrives after
        the speech, over bad Wi-Fi, still counts.
        """
        self._is_begun = False
        device_id, wake_words = self._connection.device.id, self._door.wake_words
        if not self._is_awake and not await wake_words.should_recognise(device_id):
            return False
        connection = self._door.connected_devices.find(device_id)
        if connection is not None and connection.is_was_mode and transcript.text.strip():
            self._command = self._door.commands.run_transcript(
                connection, transcript.text, transcript.language, transcript.infer_ms
            )
        return True

    def end(self) -> None:
        """Lets the command send its result, or lets another device of the room be woken."""
        if self._is_begun:
            self._door.wake_words.give_up(self._connection)
        if self._command is not None:
            self._command.may_send_result.set()
        elif self._connection.activity == "listening":
            self._connection.set_activity("idle")
