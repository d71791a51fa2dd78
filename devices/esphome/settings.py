"""Settings of the ESPHome door. The configuration imports them without the door."""

from dataclasses import dataclass, field

from pipeline.shared.settings import InitialSettings, SessionSettings

API_PORT = 6053
"Port of the API of stock firmware."


@dataclass(frozen=True, slots=True, kw_only=True)
class EspHomeAddress:
    """A device that the configuration names."""

    host: str
    port: int = API_PORT
    key: str = field(default="", repr=False)
    "Its encryption key in Base64; empty: it has none."


@dataclass(frozen=True, slots=True, kw_only=True)
class EspHomeSettings:
    """Settings of the ESPHome door."""

    devices: tuple[EspHomeAddress, ...] = ()
    initial_settings: InitialSettings = SessionSettings
    "Settings that a session begins with, before the device's profile."
