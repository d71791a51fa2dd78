"""A connection of the library to a device, and what the device says about itself."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from aioesphomeapi.client import APIClient
from aioesphomeapi.core import APIConnectionError
from aioesphomeapi.model import DeviceInfo

from devices.esphome.settings import EspHomeAddress
from devices.fleet.directory import DeviceClaims

KEEPALIVE_S = 10.0
"Interval of pings. A device that does not answer is given up after 4.5 of them."

GOODBYE_LIMIT_S = 1.0
"Longest wait for the device's answer when we leave."

CONNECT_LIMIT_S = 60.0
"Longest attempt. A weak network needs up to 30 s for the encryption's handshake."


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
