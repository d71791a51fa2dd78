"""mDNS: the local network learns of the Wyoming server. protocols/wyoming.md section 4."""

import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from server.net.addresses import IpAddress

logger = logging.getLogger(__name__)

SERVICE = "_wyoming._tcp.local."
"What Home Assistant looks for."

MAX_NAME_CHARS = 63
"Of one label of a DNS name; a machine's may fill it alone."


@asynccontextmanager
async def mdns_service(port: int, addresses: Sequence[IpAddress]) -> AsyncIterator[None]:
    """While the body runs. Where it cannot be told (no multicast; another has our name), a line
    says so, and Home Assistant takes host and port by hand. The name is the machine's, so that it
    stays."""
    from zeroconf import Error

    async with AsyncExitStack() as stack:
        try:
            logger.info("announced as %s", await _announce(port, addresses, stack))
        except (Error, OSError) as error:
            logger.warning("! wyoming is not announced by mDNS: %r", error)
        yield


async def _announce(port: int, addresses: Sequence[IpAddress], stack: AsyncExitStack) -> str:
    """Under which name. Raises zeroconf.Error, OSError."""
    from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

    name = f"earshot-{socket.gethostname().partition('.')[0].lower()}"[:MAX_NAME_CHARS]
    info = AsyncServiceInfo(
        SERVICE,
        f"{name}.{SERVICE}",
        addresses=[address.packed for address in addresses],
        port=port,
        server=f"{name}.local.",
    )
    responder = AsyncZeroconf()
    stack.push_async_callback(responder.async_close)  # takes back what was registered, no other's
    await responder.async_register_service(info)
    return str(info.name)
