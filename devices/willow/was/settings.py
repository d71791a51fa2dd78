"""What the application server's door is told. Apart from it: the configuration needs no server."""

from dataclasses import dataclass, field
from pathlib import Path

from devices.ip_allowlist import IpNetwork
from pipeline.shared.settings import SessionSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class WasSettings:
    networks: tuple[IpNetwork, ...]
    "Whose devices may come without the key."
    trusts_this_machine: bool = True
    "Whether a device that comes from an address of this machine opens that for others, too."
    groups: tuple[tuple[str, ...], ...] = ()
    "Areas that hear each other."
    audio_hosts: tuple[str, ...] = ()
    "Where devices may fetch the sound of notifications, beside here."
    folder: Path
    "With `firmware/` and `assets/`; need not exist."
    sends_secrets: bool = False
    "Tokens and the Wi-Fi password, to whoever says an approved device's MAC."
    usual: SessionSettings = field(default_factory=SessionSettings)
    "What a conversation begins with, where the device's profile says nothing."
    version: str = ""
