"""Wake words of Willow's devices: remembers which device may listen, and tells it."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from core.ports import Clock
from devices.fleet.arbitration import WakeLevel
from devices.fleet.wake_arbiter import ReportedWakeWord, WakeArbiter
from devices.willow.was.connected_devices import WillowDevices
from devices.willow.was.socket.connection import WillowConnection
from firmware_protocol.willow.messages import WakeResult

FRESH_S = 15.0
"""A wake word belongs to an utterance that begins within this time. The firmware stops listening 5
s after the wake word (`stream_timeout`), and sends nothing for longer than it listens."""


class WillowWakeWords:
    """Takes part in the arbitration of wake words for Willow's devices."""

    def __init__(
        self, arbiter: WakeArbiter, connected_devices: WillowDevices, clock: Clock
    ) -> None:
        self._arbiter, self._connected_devices, self._clock = arbiter, connected_devices, clock
        self._latest: dict[str, ReportedWakeWord] = {}
        "Latest wake word by device id."

    @contextmanager
    def connected(self, connection: WillowConnection) -> Iterator[None]:
        """Lets the device take part while the `with` block runs."""
        device_id = connection.device.id
        try:
            with self._arbiter.connected(connection):
                yield
        finally:
            if self._connected_devices.find(device_id) in (None, connection):
                self._latest.pop(device_id, None)  # no newer socket represents the device

    def wake_started(self, connection: WillowConnection, volume_db: float | None) -> None:
        """Handles `wake_start`: the device listens from now on, until it gets another verdict."""
        device_id = connection.device.id
        connection.set_activity("listening")
        self._latest[device_id] = self._arbiter.report(
            connection,
            connection.wake_word,
            None if volume_db is None else WakeLevel(volume_db),
            on_decided=partial(self._send_result, device_id),
        )

    def wake_ended(self, connection: WillowConnection) -> None:
        """Handles `wake_end`."""
        if connection.activity == "listening":
            connection.set_activity("idle")

    def is_awake(self, device_id: str) -> bool:
        """Returns True if the next speech of this device belongs to a wake word that it
        reported."""
        wake = self._latest.get(device_id)
        return wake is not None and self._clock.now() <= wake.at + FRESH_S

    async def should_recognise(self, device_id: str) -> bool:
        """Returns whether the present speech of this device is to be recognised.

        Waits for the decision, at most 200 ms. A device without a reported wake word (a button,
        multiwake off) may always speak.
        """
        wake = self._latest.get(device_id)
        if wake is None or not self.is_awake(device_id):
            return True
        won = await wake.is_won()
        if self._latest.get(device_id) is wake:
            del self._latest[device_id]  # its next speech does not belong to this wake word
        return won

    def give_up(self, connection: WillowConnection) -> None:
        """Ends the contest of a device whose speech broke off or never began."""
        self._arbiter.give_up(connection)

    def device_moves(self, connection: WillowConnection) -> None:
        """Takes a device, which is about to be moved, out of the contest of its room."""
        self._arbiter.withdraw(connection)
        self._latest.pop(connection.device.id, None)

    def forget(self, device_id: str) -> None:
        """Drops what is known of a device that is no longer known."""
        self._arbiter.forget(device_id)

    def _send_result(self, device_id: str, won: bool) -> None:
        connection = self._connected_devices.find(device_id)
        if connection is not None:
            connection.send(WakeResult(won))
            if not won:
                connection.set_activity("idle")
