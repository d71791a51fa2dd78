"""Announces the Wyoming server in the local network by mDNS, so that Home Assistant finds it."""

import logging
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from core.ip_addresses import IpAddress

logger = logging.getLogger(__name__)

SERVICE = "_wyoming._tcp.local."
"Service type that Home Assistant looks for."

MAX_NAME_CHARS = 63
"Largest length of one label of a DNS name. The machine's name alone may fill it."


@asynccontextmanager
async def mdns_service(port: int, addresses: Sequence[IpAddress]) -> AsyncIterator[None]:
    """Announces the Wyoming server until the context is left. The name is derived from the
    machine's, so it stays the same. If announcing fails (no multicast, or the name is taken), one
    warning is logged, and host and port must be entered in Home Assistant by hand."""
    from zeroconf import Error

    async with AsyncExitStack() as stack:
        try:
            logger.info("announced by mDNS as %s", await _announce(port, addresses, stack))
        except (Error, OSError) as error:
            logger.warning("! wyoming is not announced by mDNS: %r", error)
        yield


async def _announce(port: int, addresses: Sequence[IpAddress], stack: AsyncExitStack) -> str:
    """Registers the service and returns its name. Raises zeroconf.Error or OSError."""
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
    stack.push_async_callback(responder.async_close)  # unregisters only what was registered here
    await responder.async_register_service(info)
    return str(info.name)
