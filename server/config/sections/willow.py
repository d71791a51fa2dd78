"""Section `[willow]`: Willow's inference server and its application server."""

from pathlib import Path
from typing import Annotated

from msgspec import Meta

from core.errors import ConfigError
from core.net.ip_addresses import IpNetwork
from devices.fleet.ip_allowlist import KeylessPageSettings
from devices.willow.was.settings import WasSettings
from devices.willow.wis.voice_auth import DEFAULT_THRESHOLD
from pipeline.shared.settings import InitialSettings
from server.config.types import Section
from server.net.allowlist import listening_host, networks_of

FOLDER = "willow"
"Folder in the state folder, with `firmware/VERSION/BOARD.bin` and `assets/audio/NAME`."


class WillowConfig(Section, frozen=True):
    """Settings for Willow's devices and clients. Their paths under /api are also on the main
    listener."""

    http_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description="Additional port for Willow only, without TLS; WIS uses 19001. 0: none.",
        ),
    ] = 0
    https_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description=(
                "Additional port for Willow only, with TLS as server.tls says, or auto if that"
                " is off; WIS uses 19000. 0: none."
            ),
        ),
    ] = 0
    sv_threshold: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description=(
                "Score from which a voice is known, for requests with voice_auth=true; WIS's"
                " setting of the same name."
            ),
        ),
    ] = DEFAULT_THRESHOLD
    was_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65535,
            description=(
                "Port of the application server, to which Willow's devices connect without a key;"
                " WAS uses 8502. 0: none."
            ),
        ),
    ] = 0
    networks: Annotated[
        tuple[str, ...],
        Meta(
            title="list of lan or networks like 192.168.1.0/24",
            description=(
                "Networks whose devices may connect to was_port, in addition to this machine. lan"
                " means every private network. If empty, was_port listens only on a loopback"
                " address. Each device must also be approved."
            ),
        ),
    ] = ()
    wake_groups: Annotated[
        tuple[tuple[str, ...], ...],
        Meta(
            title="list of lists of rooms",
            description=(
                "Groups of rooms in which the same speech is audible. Only one device of a group,"
                " whatever its kind, answers a wake word. Any other room is its own group, and all"
                " devices without a room form one group."
            ),
        ),
    ] = ()
    audio_hosts: Annotated[
        tuple[str, ...],
        Meta(
            title="list of names or addresses, with :port if wished",
            description=(
                "Hosts from which devices may load the audio of a notification, in addition to"
                " this server."
            ),
        ),
    ] = ()
    page_origins: Annotated[
        tuple[Annotated[str, Meta(pattern=r"^https?://[^/*@\s]+$")], ...],
        Meta(
            title="list of origins like https://kiosk.lan:8443",
            description=(
                "Sites whose pages may use speech recognition and synthesis without the key, as"
                " WIS's browser client does. The browser must be in willow.networks, or on this"
                " machine unless this machine needs the key (server.require_key, api_key,"
                " allowed_hosts)."
            ),
        ),
    ] = ()

    secrets: Annotated[
        bool,
        Meta(
            description=(
                "Whether devices are sent tokens (if was_mode is off) and the Wi-Fi password. Any"
                " machine in willow.networks that claims the MAC address of an approved device"
                " gets them too."
            )
        ),
    ] = False

    def __post_init__(self) -> None:
        self._networks()
        areas = [area.strip().casefold() for group in self.wake_groups for area in group]
        duplicates = sorted({area for area in areas if areas.count(area) > 1})
        if duplicates:
            raise ConfigError(f"willow.wake_groups: {duplicates[0]!r} is named twice")

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
        self,
        state_dir: str,
        initial_settings: InitialSettings,
        version: str,
        *,
        trusts_this_machine: bool,
    ) -> WasSettings:
        """Returns the application server's settings. `initial_settings`: settings with which a
        conversation begins."""
        return WasSettings(
            networks=self._networks(),
            trusts_this_machine=trusts_this_machine,
            audio_hosts=self.audio_hosts,
            sends_secrets=self.secrets,
            folder=Path(state_dir).expanduser() / FOLDER,
            default_settings=initial_settings,
            version=version,
        )

    def _networks(self) -> tuple[IpNetwork, ...]:
        """Parses the networks. Raises ConfigError."""
        return networks_of(self.networks, "willow.networks")
