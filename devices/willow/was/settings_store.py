"""Willow's own settings, stored with the devices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

import msgspec

from core.errors import Conflict, RequestError
from devices.fleet.directory import DeviceSettingsStore
from devices.willow.was.device_config import has_secret
from firmware_protocol.willow.messages import NvsMessage, Scalar

CONFIG, NVS, PUSHED, WAS = "willow.config", "willow.nvs", "willow.pushed", "willow.was"

SSID_CHARS, PSK_CHARS = range(1, 33), range(8, 64)
"Allowed lengths of a Wi-Fi name and password, in bytes (IEEE 802.11)."


@dataclass(frozen=True, slots=True)
class NvsSettings:
    """Settings that devices keep in their non-volatile storage (NVS): the address of WAS, and the
    Wi-Fi. Empty: never set."""

    was_url: str = ""
    wifi_ssid: str = ""
    wifi_psk: str = field(default="", repr=False)

    def message(self, *, with_secrets: bool) -> NvsMessage:
        """Returns the message for devices. Raises Conflict if it holds a password that may not be
        sent."""
        if not with_secrets and (self.wifi_psk or has_secret("was_url", self.was_url)):
            raise Conflict(
                "a password (of the Wi-Fi, or in the URL of WAS) is not sent to devices; set"
                " willow.secrets to allow it",
                code="secrets_not_sent",
                param="apply",
            )
        return NvsMessage(self.was_url, self.wifi_ssid, self.wifi_psk)

    def as_json(self) -> dict[str, dict[str, str]]:
        """Returns the settings in WAS's form."""
        return {
            "WAS": {"URL": self.was_url},
            "WIFI": {"PSK": self.wifi_psk, "SSID": self.wifi_ssid},
        }


class WillowSettingsStore:
    """Store of Willow's settings. Every call may raise StorageError.

    device_id: the device that the settings are for; empty: all devices.
    """

    def __init__(self, settings: DeviceSettingsStore) -> None:
        self._settings = settings

    async def config(self, device_id: str = "") -> dict[str, Scalar]:
        """Returns the stored configuration of a device, or of all devices."""
        return await self._table(CONFIG, device_id)

    async def save_config(self, values: Mapping[str, Scalar], device_id: str = "") -> None:
        """Stores a configuration. Raises NotFound for an unknown device."""
        await self._settings.write(CONFIG, dict(values) or None, device_id)

    async def nvs(self) -> NvsSettings:
        """Returns the address of WAS, and the Wi-Fi."""
        found = await self._table(NVS)
        return NvsSettings(**{name: str(found.get(name, "")) for name in NvsSettings.__slots__})

    async def save_nvs(self, nvs: NvsSettings) -> None:
        values = {name: getattr(nvs, name) for name in NvsSettings.__slots__}
        await self._settings.write(NVS, values)

    async def was(self) -> dict[str, Any]:
        """Returns the settings that WAS's page stores for itself."""
        return await self._table(WAS)

    async def save_was(self, values: Mapping[str, object]) -> None:
        await self._settings.write(WAS, dict(values))

    async def was_pushed(self, values: Mapping[str, Scalar], device_id: str) -> bool:
        """Returns True if the device was last sent this configuration."""
        return bool(await self._settings.read(PUSHED, device_id) == _digest(values))

    async def note_pushed(self, values: Mapping[str, Scalar], device_id: str) -> None:
        """Records the configuration that the device was sent."""
        await self._settings.write(PUSHED, _digest(values), device_id)

    async def _table(self, key: str, device_id: str = "") -> dict[str, Any]:
        found = await self._settings.read(key, device_id)
        return dict(found) if isinstance(found, Mapping) else {}


def read_nvs(sent: Mapping[str, object], old: NvsSettings, mask: str) -> NvsSettings:
    """Reads `{"WAS": {"URL"}, "WIFI": {"PSK", "SSID"}}`; absent and masked values stay as in `old`.

    Raises RequestError, which names the wrong field and no password.
    """
    was, wifi = _section(sent, "WAS"), _section(sent, "WIFI")
    url = _text(was, "URL") or old.was_url
    ssid, psk = _text(wifi, "SSID") or old.wifi_ssid, _text(wifi, "PSK")
    psk = old.wifi_psk if psk in ("", mask) else psk
    if url and not (url.startswith(("ws://", "wss://")) and len(url) <= 256 and url.isprintable()):
        raise _refusal("WAS.URL", "ws:// or wss:// and a host, at most 256 characters")
    if ssid and len(ssid.encode()) not in SSID_CHARS:
        raise _refusal("WIFI.SSID", "1 to 32 bytes")
    if psk and len(psk.encode()) not in PSK_CHARS:
        raise _refusal("WIFI.PSK", "8 to 63 bytes")
    return NvsSettings(url, ssid, psk)


def _section(sent: Mapping[str, object], name: str) -> Mapping[str, Any]:
    found = sent.get(name, {})
    if not isinstance(found, Mapping):
        raise _refusal(name, "an object")
    return found


def _text(section: Mapping[str, object], name: str) -> str:
    found = section.get(name) or ""
    if not isinstance(found, str):
        raise _refusal(name, "text")
    return found


def _refusal(param: str, allowed: str) -> RequestError:
    return RequestError(f"{param}: allowed: {allowed}", code="invalid_value", param=param)


def _digest(values: Mapping[str, Scalar]) -> str:
    return sha256(msgspec.json.encode(dict(sorted(values.items())))).hexdigest()
