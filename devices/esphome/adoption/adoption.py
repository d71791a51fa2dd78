"""Adopts a satellite: connects once, gives it a key if it has none, and keeps where it is."""

import asyncio
import logging
import secrets
from base64 import b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from aioesphomeapi import ZERO_NOISE_PSK
from aioesphomeapi.client import APIClient
from aioesphomeapi.core import APIConnectionError
from aioesphomeapi.model import DeviceInfo

from core.errors import Conflict
from devices.esphome.adoption.discovery import FoundSatellite
from devices.esphome.adoption.satellite_store import AdoptedSatellites
from devices.esphome.errors import UNREACHABLE, failure_of
from devices.esphome.link import claims_of, connected
from devices.esphome.settings import EspHomeAddress
from devices.fleet.directory import Device, DeviceClaims, DeviceDirectory

logger = logging.getLogger(__name__)

ADOPT_LIMIT_S = 45.0
"Longest adoption. A weak network needs up to 30 s for the encryption's handshake."

KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """Adopts satellites, one at a time, because some devices serve only the newest connection."""

    adopted: AdoptedSatellites
    directory: DeviceDirectory
    approve: Callable[[str], Awaitable[Device]]
    version: str

    async def adopt(self, found: FoundSatellite, key: str) -> Device:
        """Adopts a device. key: its encryption key in Base64; empty: it has none.

        Raises Conflict with the codes of `failure_of` and no_voice, StorageError.
        """
        address = EspHomeAddress(
            host=found.host, port=found.port, key=key, hardware_id=found.hardware_id
        )
        try:
            async with self.adopted.changing, asyncio.timeout(ADOPT_LIMIT_S):
                return await self._adopt(address)
        except (APIConnectionError, OSError) as error:
            if isinstance(error, TimeoutError):
                raise Conflict("it does not answer in time", code=UNREACHABLE) from error
            failure = failure_of(error, has_key=bool(key))
            raise Conflict(failure.message, code=failure.code) from None  # it may hold the key

    async def _adopt(self, address: EspHomeAddress) -> Device:
        async with connected(address, self.version) as client:
            info = await client.device_info()
            if not info.voice_assistant_feature_flags_compat(client.api_version):
                raise Conflict("it is no voice satellite", code="no_voice")
            device = await self._approved(claims_of(client, info))
            if not address.key and info.api_encryption_supported:
                address = await self._give_key(client, info, device, address)
        await self.adopted.keep(device.id, address)
        logger.info("= esphome device %s (%s) was adopted", device.id, device.name)
        return device

    async def _approved(self, claims: DeviceClaims) -> Device:
        device = await self.directory.check_in(claims)
        return device if device.standing == "approved" else await self.approve(device.id)

    async def _give_key(
        self, client: APIClient, info: DeviceInfo, device: Device, address: EspHomeAddress
    ) -> EspHomeAddress:
        """Gives the device a key of ours; returns the address with it, or as it was if the device
        wants none. The key is stored before it is sent: a lost one needs a reset of the device."""
        key = b64encode(secrets.token_bytes(KEY_BYTES)).decode("ascii")
        keyed = replace(address, key=key, is_own_key=True)
        await self.adopted.keep(device.id, keyed)
        if info.api_encryption_provisionable:
            # The key of zeros hides ours from who only listens.
            zero = replace(address, key=ZERO_NOISE_PSK)
            async with connected(zero, self.version) as hidden:
                is_set = await hidden.noise_encryption_set_key(key.encode("ascii"))
        else:
            is_set = await client.noise_encryption_set_key(key.encode("ascii"))
        if not is_set:
            logger.warning("! esphome device %s takes no key; it stays unencrypted", device.id)
        return keyed if is_set else address
