"""Section `[esphome]`: the door for ESPHome voice satellites."""

from dataclasses import replace
from ipaddress import ip_address
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from devices.esphome.settings import API_PORT, EspHomeAddress, EspHomeSettings
from pipeline.shared.settings import InitialSettings, SessionSettings, TurnDetection
from server.config.types import Section

DEFAULT_SOUNDS_PORT = 10380


class EspHomeDeviceConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One satellite, under a name of your choice."""

    host: Annotated[str, Meta(min_length=1, max_length=253)]
    "Address or name of the satellite."
    port: Annotated[int, Meta(ge=1, le=65535)] = API_PORT
    key: Annotated[str, Meta(max_length=64)] = ""
    "Encryption key of its firmware (`api: encryption: key:`), 32 bytes in Base64; empty: none."

    def __repr__(self) -> str:
        return f"EspHomeDeviceConfig(host={self.host!r}, port={self.port})"


class EspHomeConfig(Section, frozen=True):
    """Settings for voice satellites with ESPHome's firmware. The server connects to them, in place
    of Home Assistant. Needs the extra esphome."""

    devices: Annotated[
        dict[str, EspHomeDeviceConfig],
        Meta(
            title="tables with host",
            description=(
                "Satellites by a name of your choice, each with host and, where they are not the"
                " usual ones, port and key. Without one, and without"
                " discovery, the door is off."
            ),
        ),
    ] = field(default_factory=dict)
    detection: Annotated[
        Literal["server_vad", "semantic_vad"],
        Meta(
            description=(
                "Method of detecting the end of a turn; satellites leave it to the server."
                " semantic_vad answers sooner after whole sentences, server_vad always waits for"
                " turn.silence_ms."
            )
        ),
    ] = "semantic_vad"
    discovery: Annotated[
        bool,
        Meta(
            description=(
                "true: the server listens for satellites that announce themselves by mDNS, and the"
                " page offers to adopt them. It also keeps connected to those that were adopted."
            ),
        ),
    ] = False
    sounds_port: Annotated[
        int,
        Meta(
            ge=1,
            le=65535,
            description=(
                "Port from which satellites fetch answers, over plain HTTP, because they cannot"
                " check a certificate of your own. It serves nothing else, and is open only if"
                " devices has a satellite or discovery is true."
            ),
        ),
    ] = DEFAULT_SOUNDS_PORT

    @property
    def is_on(self) -> bool:
        """True if there are satellites to connect to, or to look for."""
        return self.discovery or bool(self.devices)

    @property
    def keys(self) -> list[str]:
        """Encryption keys of the satellites, which the log must not show."""
        return [device.key for device in self.devices.values() if device.key]

    @property
    def host(self) -> str:
        """Address to listen on: this machine alone if all satellites are on it."""
        if self.discovery:
            return "0.0.0.0"  # noqa: S104
        hosts = [device.host for device in self.devices.values()]
        return "127.0.0.1" if all(map(_is_here, hosts)) else "0.0.0.0"  # noqa: S104

    def as_settings(self, initial_settings: InitialSettings) -> EspHomeSettings:
        """Returns the settings in the door's form. `initial_settings`: those of a new session."""

        def satellite_settings() -> SessionSettings:
            settings = initial_settings()
            turn = settings.turn_detection or TurnDetection()
            return replace(
                settings,
                wake_word="",  # the satellite has detected its own already
                turn_detection=replace(turn, kind=self.detection),
            )

        return EspHomeSettings(
            devices=tuple(
                EspHomeAddress(host=one.host, port=one.port, key=one.key)
                for one in self.devices.values()
            ),
            initial_settings=satellite_settings,
        )


def _is_here(host: str) -> bool:
    """Returns True for names and addresses of this machine itself."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
