"""mDNS: the local network learns of the Wyoming server. protocols/wyoming.md section 4."""

import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from server.net import lan_addresses

logger = logging.getLogger(__name__)

SERVICE = "_wyoming._tcp.local."
"What Home Assistant looks for."


@asynccontextmanager
async def announced(port: int) -> AsyncIterator[None]:
    """While the body runs. Where it cannot be told (no multicast), a line says so, and Home
    Assistant takes host and port by hand. The name is the machine's, so that it stays."""
    from zeroconf import Error
    from zeroconf.asyncio import AsyncServiceInfo, AsyncZeroconf

    name = f"earshot-{socket.gethostname().partition('.')[0].lower()}"
    info = AsyncServiceInfo(
        SERVICE,
        f"{name}.{SERVICE}",
        addresses=[address.packed for address in lan_addresses()],
        port=port,
        server=f"{name}.local.",
    )
    try:
        zeroconf = AsyncZeroconf()
    except OSError as error:
        logger.warning("! wyoming is not announced by mDNS: %s", error)
        yield
        return
    try:
        await zeroconf.async_register_service(info)
        logger.info("announced as %s", info.name)
    except (Error, OSError) as error:
        logger.warning("! wyoming is not announced by mDNS: %s", error)
    try:
        yield
    finally:
        await zeroconf.async_unregister_service(info)
        await zeroconf.async_close()
