"""Settings of the xiaozhi door. The configuration imports them without the door."""

from dataclasses import dataclass, field
from pathlib import Path

from core.net.ip_addresses import IpNetwork
from firmware_protocol.xiaozhi.state_machine import DialogueSettings
from pipeline.shared.settings import InitialSettings, SessionSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class XiaozhiSettings:
    """Settings of the xiaozhi door."""

    networks: tuple[IpNetwork, ...]
    "Networks whose check-ins are answered."
    url: str = ""
    "URL of our WebSocket for devices; empty: the address that received their check-in."
    initial_settings: InitialSettings = SessionSettings
    "Settings that a session begins with, before the device's profile."
    dialogue: DialogueSettings = field(default_factory=DialogueSettings)
    folder: Path = Path("firmware")
    "Folder of firmware images, `VERSION/BOARD.bin`; need not exist."
    offers_firmware: bool = False
    "True: boards that start are offered newer firmware."
