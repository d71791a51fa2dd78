"""What the door is told. Apart from it: the configuration needs no server."""

from dataclasses import dataclass, field
from pathlib import Path

from devices.ip_allowlist import IpNetwork
from firmware_protocol.xiaozhi.state_machine import DialogueSettings
from pipeline.shared.settings import SessionSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class XiaozhiSettings:
    networks: tuple[IpNetwork, ...]
    "Whose check-ins are answered."
    url: str = ""
    "Of our WebSocket, as devices shall use it; empty: where their check-in came to."
    fresh: SessionSettings = field(default_factory=SessionSettings)
    dialogue: DialogueSettings = field(default_factory=DialogueSettings)
    folder: Path = Path("firmware")
    "Of firmware images, `VERSION/BOARD.bin`; need not exist."
    offers_firmware: bool = False
    "To boards that start, where it is newer than theirs."
