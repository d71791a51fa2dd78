"""A connection of the library to a device, and what the device says about itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from aioesphomeapi.client import APIClient
from aioesphomeapi.core import APIConnectionError
from aioesphomeapi.model import DeviceInfo, EntityInfo, MediaPlayerInfo, VoiceAssistantFeature

from devices.esphome.settings import EspHomeAddress
from devices.fleet.directory import DeviceClaims

KEEPALIVE_S = 10.0
"Interval of pings. A device that does not answer is given up after 4.5 of them."

GOODBYE_LIMIT_S = 1.0
"Longest wait for the device's answer when we leave."

CONNECT_LIMIT_S = 60.0
"Longest attempt. A weak network needs up to 30 s for the encryption's handshake."

CRASHING, REPAIRED = (2025, 8), (2026, 6)
"First version of ESPHome that may restart when it is asked, and the first that does not again."

FOR_ANNOUNCEMENTS = 1
"Purpose of a format (`MediaPlayerFormatPurpose`)."


async def _ignore(_: bool) -> None:
    """Nobody waits for the end of this connection."""


@asynccontextmanager
async def connected(
    address: EspHomeAddress,
    version: str,
    on_stop: Callable[[bool], Awaitable[None]] = _ignore,
) -> AsyncIterator[APIClient]:
    """Connects, and says goodbye when the context is left. on_stop: called when the device is
    gone. Raises APIConnectionError, OSError, TimeoutError."""
    mac = address.hardware_id.replace(":", "")
    client = APIClient(
        address.host,
        address.port,
        None,
        client_info=f"Earshot {version}",
        keepalive=KEEPALIVE_S,
        noise_psk=address.key or None,
        expected_mac=mac or None,
    )
    try:
        async with asyncio.timeout(CONNECT_LIMIT_S):
            await client.connect(on_stop=on_stop, login=True, log_errors=False)
        yield client
    finally:
        with suppress(APIConnectionError, TimeoutError):  # a device that does not answer is left
            async with asyncio.timeout(GOODBYE_LIMIT_S):
                await client.disconnect()
        client.force_disconnect()


def claims_of(client: APIClient, info: DeviceInfo) -> DeviceClaims:
    """Returns what a device says about itself, in the directory's form."""
    return DeviceClaims(
        kind="esphome",
        hardware_id=info.mac_address.lower(),
        address=client.connected_address or "",
        name=info.friendly_name or info.name,
        board=info.project_name.rpartition(".")[2] or info.model,
        firmware=info.project_version or info.esphome_version,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SatelliteAbilities:
    """Abilities of a satellite, as it reported them when it was connected."""

    features: VoiceAssistantFeature
    player_key: int | None
    "Key of its media player; None: it has none."
    formats: tuple[tuple[str, int, bool], ...]
    "Formats that it plays, as `choose_format` takes them."
    crashes_when_asked: bool
    """True for firmware that restarts if a client asks for its wake words while another one is
    subscribed (ESPHome 2025.8.0 to 2026.5.x, its issue 16728)."""

    @classmethod
    def of(
        cls, info: DeviceInfo, entities: Iterable[EntityInfo], api_version: Any
    ) -> "SatelliteAbilities":
        """Reads them from what the device says about itself."""
        players = [one for one in entities if isinstance(one, MediaPlayerInfo)]
        player = players[0] if players else None
        return cls(
            features=VoiceAssistantFeature(info.voice_assistant_feature_flags_compat(api_version)),
            player_key=player.key if player else None,
            formats=tuple(
                (one.format, one.sample_rate, one.purpose == FOR_ANNOUNCEMENTS)
                for one in (player.supported_formats if player else ())
            ),
            crashes_when_asked=CRASHING <= _release(info.esphome_version) < REPAIRED,
        )

    @property
    def has_raw_speaker(self) -> bool:
        """True if it plays sound that it is sent, and fetches none."""
        can_fetch = VoiceAssistantFeature.ANNOUNCE in self.features or self.player_key is not None
        return VoiceAssistantFeature.SPEAKER in self.features and not can_fetch

    @property
    def can_be_started(self) -> bool:
        """True if it can be told to listen after an announcement."""
        return VoiceAssistantFeature.START_CONVERSATION in self.features

    @property
    def can_announce(self) -> bool:
        """True if it plays announcements."""
        return VoiceAssistantFeature.ANNOUNCE in self.features


def _release(version: str) -> tuple[int, ...]:
    """Returns (2026, 6) for `2026.6.1`; the numbers before the first other text if it has some."""
    parts = takewhile(str.isdecimal, version.split(".")[:2])
    return tuple(int(part) for part in parts)
