"""mDNS in the local network: announces the Wyoming server to Home Assistant, and finds Home
Assistant and voice satellites."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from core.net.ip_addresses import IpAddress

logger = logging.getLogger(__name__)

SERVICE = "_wyoming._tcp.local."
"Service type that Home Assistant looks for."

MAX_NAME_CHARS = 63
"Largest length of one label of a DNS name. The machine's name alone may fill it."

HOME_ASSISTANT = "_home-assistant._tcp.local."
"Service type that Home Assistant announces."

FIND_LIMIT_S = 2.0
"Time in seconds for answers. A machine that is awake answers within one."

DETAILS_LIMIT_MS = 1000
"Time in milliseconds for the address of what was found. It usually came with the answer."

MAX_FOUND = 10
"Largest number of Home Assistants that are listed; a house has one."


MAX_CHANGES = 256
"Largest number of announcements that wait until they are looked at."


class FoundHomeAssistant(Struct, frozen=True):
    """A Home Assistant in the local network, as it announces itself."""

    name: str
    "Name of the house."
    url: str


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


class MdnsListener(Protocol):
    """Receiver of what `mdns_search` finds."""

    def note(
        self, service: str, addresses: Sequence[str], port: int, texts: Mapping[str, str]
    ) -> None:
        """Takes a new or changed announcement. service: its full name."""
        ...

    def gone(self, service: str) -> None:
        """Takes the end of an announcement."""
        ...


async def mdns_search(service_type: str, listener: MdnsListener) -> None:
    """Follows the announcements of a service type until it is cancelled. If the network cannot be
    asked, one warning is logged, and it returns."""
    from zeroconf import Error, ServiceStateChange, Zeroconf
    from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

    changes: asyncio.Queue[tuple[str, ServiceStateChange]] = asyncio.Queue(MAX_CHANGES)

    def note(
        zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        if not changes.full():  # somebody floods the network; devices announce themselves again
            changes.put_nowait((name, state_change))

    try:
        asker = AsyncZeroconf()
    except (Error, OSError) as error:
        logger.warning("! %s cannot be searched by mDNS: %r", service_type, error)
        return
    try:
        browser = AsyncServiceBrowser(asker.zeroconf, service_type, handlers=[note])
        while True:
            name, change = await changes.get()
            info = AsyncServiceInfo(service_type, name)
            if change is ServiceStateChange.Removed:
                listener.gone(name)
            elif await info.async_request(asker.zeroconf, DETAILS_LIMIT_MS):
                listener.note(name, info.parsed_addresses(), info.port or 0, _texts(info))
    finally:
        await browser.async_cancel()
        await asker.async_close()


async def find_home_assistants(limit_s: float = FIND_LIMIT_S) -> tuple[FoundHomeAssistant, ...]:
    """Asks the local network for Home Assistant, and returns what has answered within `limit_s`
    seconds, sorted by address. Any machine of the network can answer. Raises OSError if the network
    cannot be asked."""
    from zeroconf import Error, ServiceStateChange, Zeroconf
    from zeroconf.asyncio import AsyncServiceBrowser, AsyncServiceInfo, AsyncZeroconf

    names: set[str] = set()

    def note(
        zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange
    ) -> None:
        if state_change is ServiceStateChange.Added and len(names) < MAX_FOUND:
            names.add(name)

    try:
        asker = AsyncZeroconf()
    except Error as error:
        raise OSError(str(error)) from error
    try:
        browser = AsyncServiceBrowser(asker.zeroconf, HOME_ASSISTANT, handlers=[note])
        await asyncio.sleep(limit_s)
        await browser.async_cancel()
        infos = [AsyncServiceInfo(HOME_ASSISTANT, name) for name in names]
        known = await asyncio.gather(
            *(info.async_request(asker.zeroconf, DETAILS_LIMIT_MS) for info in infos)
        )
    finally:
        await asker.async_close()
    found = {_home_assistant(info) for info, is_known in zip(infos, known, strict=True) if is_known}
    return tuple(
        sorted((server for server in found if server is not None), key=lambda server: server.url)
    )


def _texts(info: Any) -> Mapping[str, str]:
    """Returns the TXT record of an announcement (`AsyncServiceInfo`)."""
    return {
        key.decode(errors="replace"): (value or b"").decode(errors="replace")
        for key, value in info.properties.items()
    }


def _home_assistant(info: Any) -> FoundHomeAssistant | None:
    """Returns what an announcement (`AsyncServiceInfo`) says; None if it has no address."""
    texts = _texts(info)
    name = info.name.removesuffix(f".{HOME_ASSISTANT}")
    title = "".join(filter(str.isprintable, texts.get("location_name") or name))[:MAX_NAME_CHARS]
    url = texts.get("internal_url", "").rstrip("/")
    if not _is_plain_address(url):
        address = next((address for address in info.parsed_addresses() if "." in address), None)
        if address is None or not info.port:
            return None
        url = f"http://{address}:{info.port}"
    return FoundHomeAssistant(title, url)


def _is_plain_address(url: str) -> bool:
    """Returns whether this is http:// or https:// with a host and nothing else."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return False
    is_web = parts.scheme in ("http", "https") and bool(parts.hostname)
    return is_web and url == f"{parts.scheme}://{parts.netloc}" and "@" not in url
