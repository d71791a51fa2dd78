"""Settings of the ESPHome door. The configuration imports them without the door."""

from dataclasses import dataclass, field

from pipeline.shared.settings import InitialSettings, SessionSettings

API_PORT = 6053
"Port of the API of stock firmware."


@dataclass(frozen=True, slots=True, kw_only=True)
class EspHomeAddress:
    """A device that the configuration names, or that was adopted."""

    host: str
    port: int = API_PORT
    key: str = field(default="", repr=False)
    "Its encryption key in Base64; empty: it has none."
    hardware_id: str = ""
    "MAC of an adopted device, lower case with colons; empty: the configuration names the device."
    is_own_key: bool = False
    "True: we gave it the key, and take it back when the device is forgotten."


@dataclass(frozen=True, slots=True, kw_only=True)
class EspHomeSettings:
    """Settings of the ESPHome door."""

    devices: tuple[EspHomeAddress, ...] = ()
    initial_settings: InitialSettings = SessionSettings
    "Settings that a session begins with, before the device's profile."
