"""Services that every socket of the door uses."""

from collections import OrderedDict
from dataclasses import dataclass

from core.ports import Clock, Metrics
from devices.directory import DeviceDirectory
from devices.notification_urls import AudioUrlPolicy
from devices.presence import Presence
from devices.willow.was.connected_devices import WillowDevices
from devices.willow.was.settings_store import WillowSettingsStore
from devices.willow.was.socket.commands import DeviceCommands
from devices.willow.was.socket.connection import FirmwareUpdate
from devices.willow.was.socket.notifications import NotificationIds
from devices.willow.was.socket.wake import WakeArbiter
from pipeline.session.one_shot import OneShotResponses

MAX_LOGGED_REFUSALS = 256
"Number of devices and addresses whose refusal is remembered as logged."


@dataclass(frozen=True, slots=True)
class WasServices:
    """Services that every socket uses."""

    directory: DeviceDirectory
    presence: Presence
    store: WillowSettingsStore
    roster: WillowDevices
    wakes: WakeArbiter
    commands: DeviceCommands
    exchanges: OneShotResponses
    numbers: NotificationIds
    audio_urls: AudioUrlPolicy
    clock: Clock
    metrics: Metrics
    update: FirmwareUpdate
    sends_secrets: bool


class RefusalLog:
    """Remembers which refusals are logged: a blocked device comes back every few seconds."""

    def __init__(self) -> None:
        self._said: OrderedDict[tuple[str, str], None] = OrderedDict()

    def is_new(self, hardware_id: str, standing: str) -> bool:
        """Returns True the first time for this pair."""
        if (hardware_id, standing) in self._said:
            return False
        self._said[hardware_id, standing] = None
        if len(self._said) > MAX_LOGGED_REFUSALS:
            self._said.popitem(last=False)
        return True
