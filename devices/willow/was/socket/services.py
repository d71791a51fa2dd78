"""What every socket of the door is served with."""

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
"Devices and addresses of which the log has said that they are not served."


@dataclass(frozen=True, slots=True)
class WasServices:
    """What every socket is served with."""

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
    """Which lines the log has already: a blocked device comes back every few seconds."""

    def __init__(self) -> None:
        self._said: OrderedDict[tuple[str, str], None] = OrderedDict()

    def is_new(self, hardware_id: str, standing: str) -> bool:
        if (hardware_id, standing) in self._said:
            return False
        self._said[hardware_id, standing] = None
        if len(self._said) > MAX_LOGGED_REFUSALS:
            self._said.popitem(last=False)
        return True
