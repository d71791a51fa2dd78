"""Section `[willow]`: Willow's inference server and its application server."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from core.errors import ConfigError
from core.ip_addresses import IpNetwork
from devices.ip_allowlist import KeylessPageSettings
from devices.willow.was.settings import WasSettings
from pipeline.shared.settings import SessionSettings
from server.config.types import Section
from server.net.allowlist import listening_host, networks_of

FOLDER = "willow"
"Folder in the state folder: `firmware/VERSION/BOARD.bin` and `assets/audio/NAME`."


class WillowConfig(Section, frozen=True):
    """Settings for Willow's devices and clients. Their paths under /api are also on the main
    listener."""

    http_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="A further port for Willow alone, without TLS; WIS has 19001. 0: none.",
        ),
    ] = 0
    https_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description=(
                "The same with TLS: server.tls, or auto where that is off; WIS has 19000. 0: none."
            ),
        ),
    ] = 0
    was_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description=(
                "Port of the application server, to which Willow's devices connect without a key;"
                " WAS has 8502. 0: none."
            ),
        ),
    ] = 0
    networks: Annotated[
        tuple[str, ...],
        Meta(
            title="list of lan or networks like 192.168.1.0/24",
            description=(
                "Whose devices may connect to was_port, beside this machine; lan is every private"
                " network. While there is none, it listens on a loopback address. Each device must"
                " be approved, too."
            ),
        ),
    ] = ()
    wake_groups: Annotated[
        tuple[tuple[str, ...], ...],
        Meta(
            title="list of lists of rooms",
            description=(
                "Rooms that hear each other: one of all their devices answers a wake word. Any"
                " other room is a group of its own; devices without a room are one, too."
            ),
        ),
    ] = ()
    audio_hosts: Annotated[
        tuple[str, ...],
        Meta(
            title="list of names or addresses, with :port if wished",
            description=(
                "Where devices may be sent to for the sound of a notification, beside this server."
            ),
        ),
    ] = ()
    page_origins: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^https?://[^/*@\s]+$")], ...],
        Meta(
            title="list of origins like https://kiosk.lan:8443",
            description=(
                "Sites whose pages may recognise and speak without the key, as WIS's browser client"
                " does, in browsers of willow.networks, and of this machine unless it needs the"
                " key (server.require_key, api_key, allowed_hosts)."
            ),
        ),
    ] = ()

    secrets: Annotated[
        bool,
        Meta(
            description=(
                "Whether devices are sent tokens (with was_mode off) and the Wi-Fi password. Who is"
                " in willow.networks and says an approved device's MAC gets them, too."
            )
        ),
    ] = False

    def __post_init__(self) -> None:
        self._networks()
        named = [area.strip().casefold() for group in self.wake_groups for area in group]
        twice = sorted({area for area in named if named.count(area) > 1})
        if twice:
            raise ConfigError(f"willow.wake_groups: {twice[0]!r} is named twice")

    @property
    def was_host(self) -> str:
        """Address to listen on for was_port: all of this machine if other machines may connect."""
        return listening_host(self.networks, self._networks())

    def as_page_settings(self, *, trusts_this_machine: bool) -> KeylessPageSettings:
        """Returns the sites whose pages need no key. `trusts_this_machine`: False if this machine
        needs the key too."""
        return KeylessPageSettings(
            frozenset(self.page_origins), self._networks(), trusts_this_machine
        )

    def as_settings(
        self, state_dir: str, usual: SessionSettings, version: str, *, trusts_this_machine: bool
    ) -> WasSettings:
        """Returns the application server's settings. `usual`: settings with which a conversation
        begins."""
        return WasSettings(
            networks=self._networks(),
            trusts_this_machine=trusts_this_machine,
            groups=tuple(group for group in self.wake_groups if group),
            audio_hosts=self.audio_hosts,
            sends_secrets=self.secrets,
            folder=Path(state_dir).expanduser() / FOLDER,
            usual=usual,
            version=version,
        )

    def _networks(self) -> tuple[IpNetwork, ...]:
        """Parses the networks. Raises ConfigError."""
        return networks_of(self.networks, "willow.networks")
