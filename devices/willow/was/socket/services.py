"""Services that every socket of the door uses."""

from collections import OrderedDict
from dataclasses import dataclass

from core.ports import Clock, Metrics
from devices.fleet.directory import DeviceDirectory
from devices.fleet.presence import Presence
from devices.notices.notification_urls import AudioUrlPolicy
from devices.willow.was.connected_devices import WillowDevices
from devices.willow.was.settings_store import WillowSettingsStore
from devices.willow.was.socket.commands import DeviceCommands
from devices.willow.was.socket.connection import FirmwareUpdate
from devices.willow.was.socket.notifications import NotificationIds
from devices.willow.was.socket.wake import WillowWakeWords
from pipeline.session.one_shot import OneShotResponses

MAX_LOGGED_REFUSALS = 256
"Number of devices and addresses whose refusal is remembered as logged."


@dataclass(frozen=True, slots=True)
class WasServices:
    """Services that every socket uses."""

    directory: DeviceDirectory
    presence: Presence
    store: WillowSettingsStore
    connected_devices: WillowDevices
    wake_words: WillowWakeWords
    commands: DeviceCommands
    one_shot_responses: OneShotResponses
    notification_ids: NotificationIds
    audio_urls: AudioUrlPolicy
    clock: Clock
    metrics: Metrics
    update: FirmwareUpdate
    sends_secrets: bool
    "True: configurations for devices hold tokens and the Wi-Fi password."


class RefusalLog:
    """Remembers which refusals are logged: a blocked device comes back every few seconds."""

    def __init__(self) -> None:
        self._logged: OrderedDict[tuple[str, str], None] = OrderedDict()

    def is_new(self, hardware_id: str, standing: str) -> bool:
        """Returns True the first time for this pair."""
        if (hardware_id, standing) in self._logged:
            return False
        self._logged[hardware_id, standing] = None
        if len(self._logged) > MAX_LOGGED_REFUSALS:
            self._logged.popitem(last=False)
        return True
