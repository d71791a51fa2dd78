"""Satellites that announce themselves in the local network by mDNS. Pure: who listens calls it."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

SERVICE = "_esphomelib._tcp.local."
"Service type of ESPHome's API. Sensors and switches announce it, too."

MAX_FOUND = 256
"Most announcements that are kept: more than a house has, and no memory for who sends thousands."

MAX_NAME_CHARS = 64
MAC_DIGITS = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundSatellite:
    """A device as it announces itself. Anybody in the network can announce anything."""

    hardware_id: str
    "MAC in lower case with colons."
    name: str
    host: str
    "IP address."
    port: int
    needs_key: bool
    "True: it has an encryption key."
    is_online: bool = True
    "False: it said goodbye, or its announcement is too old."


class FoundSatellites:
    """The announced devices by MAC. Of more than MAX_FOUND, the newest are left out."""

    def __init__(self) -> None:
        self._by_service: dict[str, FoundSatellite] = {}
        self._next_change = asyncio.Event()

    def note(
        self, service: str, addresses: Sequence[str], port: int, texts: Mapping[str, str]
    ) -> None:
        """Takes an announcement. service: its full name, `<name>._esphomelib._tcp.local.`;
        addresses: the device's IP addresses; texts: its TXT record."""
        found = _satellite(service, addresses, port, texts)
        is_known = service in self._by_service
        if found is None or (len(self._by_service) >= MAX_FOUND and not is_known):
            return
        self._by_service[service] = found
        self._note_change()

    def gone(self, service: str) -> None:
        """Takes the end of an announcement. The address stays known: a device that starts again
        says goodbye, too."""
        if found := self._by_service.get(service):
            self._by_service[service] = replace(found, is_online=False)
            self._note_change()

    def find(self, hardware_id: str) -> FoundSatellite | None:
        """Returns the device with this MAC; None: it was not announced."""
        wanted = (one for one in self._by_service.values() if one.hardware_id == hardware_id)
        return next(wanted, None)

    def online(self) -> tuple[FoundSatellite, ...]:
        """Returns the devices that are announced now, by name."""
        here = (one for one in self._by_service.values() if one.is_online)
        return tuple(sorted(here, key=lambda one: (one.name.casefold(), one.hardware_id)))

    def changed(self) -> asyncio.Event:
        """Returns the event that is set at the next change."""
        return self._next_change

    def _note_change(self) -> None:
        self._next_change.set()
        self._next_change = asyncio.Event()


def _satellite(
    service: str, addresses: Sequence[str], port: int, texts: Mapping[str, str]
) -> FoundSatellite | None:
    """Returns what an announcement says; None if it lacks an address or a MAC."""
    mac = "".join(filter(str.isalnum, texts.get("mac", ""))).lower()
    host = next((one for one in addresses if "." in one), next(iter(addresses), ""))
    is_mac = len(mac) == MAC_DIGITS and set(mac) <= set("0123456789abcdef")
    if not (is_mac and host and 0 < port < 1 << 16):
        return None
    name = texts.get("friendly_name") or service.removesuffix(f".{SERVICE}")
    return FoundSatellite(
        hardware_id=":".join(mac[at : at + 2] for at in range(0, MAC_DIGITS, 2)),
        name="".join(filter(str.isprintable, name)).strip()[:MAX_NAME_CHARS],
        host=host,
        port=port,
        needs_key=bool(texts.get("api_encryption")),
    )
