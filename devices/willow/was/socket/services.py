"""What every socket of the door is served with."""

from collections import OrderedDict
from dataclasses import dataclass

from core.ports import Clock, Metrics
from devices.directory import Directory
from devices.notification_urls import AudioUrls
from devices.presence import Presence
from devices.willow.was.connected_devices import Roster
from devices.willow.was.settings_store import WillowStore
from devices.willow.was.socket.commands import Commands
from devices.willow.was.socket.connection import Update
from devices.willow.was.socket.notifications import Numbers
from devices.willow.was.socket.wake import Wakes
from pipeline.session.one_shot import Exchanges

MAX_TOLD = 256
"Devices and addresses of which the log has said that they are not served."


@dataclass(frozen=True, slots=True)
class Services:
    """What every socket is served with."""

    directory: Directory
    presence: Presence
    store: WillowStore
    roster: Roster
    wakes: Wakes
    commands: Commands
    exchanges: Exchanges
    numbers: Numbers
    audio_urls: AudioUrls
    clock: Clock
    metrics: Metrics
    update: Update
    sends_secrets: bool


class Told:
    """Which lines the log has already: a blocked device comes back every few seconds."""

    def __init__(self) -> None:
        self._said: OrderedDict[tuple[str, str], None] = OrderedDict()

    def is_new(self, hardware_id: str, standing: str) -> bool:
        if (hardware_id, standing) in self._said:
            return False
        self._said[hardware_id, standing] = None
        if len(self._said) > MAX_TOLD:
            self._said.popitem(last=False)
        return True
