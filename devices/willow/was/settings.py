"""Settings of the application server's door. The configuration imports them without the door."""

from dataclasses import dataclass
from pathlib import Path

from core.net.ip_addresses import IpNetwork
from pipeline.shared.settings import InitialSettings, SessionSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class WasSettings:
    """Settings of the application server's door."""

    networks: tuple[IpNetwork, ...]
    "Networks whose devices may connect without the key."
    trusts_this_machine: bool = True
    """True: while a device is connected from an address of this machine, requests from there need
    no key."""
    audio_hosts: tuple[str, ...] = ()
    "Further hosts from which devices may fetch sounds of notifications."
    folder: Path
    "Folder with `firmware/` and `assets/`; need not exist."
    sends_secrets: bool = False
    """True: tokens and the Wi-Fi password are sent to any client that claims an approved device's
    MAC."""
    default_settings: InitialSettings = SessionSettings
    "Settings of a conversation for which the device's profile sets nothing."
    version: str = ""
