"""HTTP API of the satellites that were found and can be adopted; the page uses it."""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Annotated

import msgspec
from aiohttp import web as aioweb
from msgspec import Meta, Struct

from core.errors import NotFound
from core.http.json_body import decode_json_body_or_empty
from core.http.routes import JSON, Route
from devices.esphome.adoption.discovery import FoundSatellite, FoundSatellites
from devices.fleet.directory import Device

PATH = "/v1/esphome/satellites"


class FoundSatelliteView(Struct, frozen=True):
    """A satellite in the local network that is not ours. What it says about itself is not
    proven."""

    hardware_id: str
    "Its MAC, lower case with colons."
    name: str
    address: str
    needs_key: bool
    "True: it is encrypted, and can only be adopted with its key."


class FoundSatelliteList(Struct, frozen=True):
    """Satellites that can be adopted."""

    is_searching: bool
    "False: the server does not look for satellites (`esphome.discovery`)."
    satellites: list[FoundSatelliteView]
    "Sorted by name. Sensors and switches with ESPHome's firmware are among them."


class AdoptRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Adoption of a satellite."""

    key: Annotated[str, Meta(pattern="^([A-Za-z0-9+/]{43}=)?$")] = ""
    """Encryption key of its firmware, 32 bytes in Base64. Empty: it has none; a satellite that can
    encrypt is then given one by the server."""

    def __repr__(self) -> str:
        return "AdoptRequest()"


class AdoptedDevice(Struct, frozen=True):
    """The adopted satellite is a device."""

    id: str
    "Id for `/v1/devices/{device_id}`."


@dataclass(frozen=True, slots=True)
class AdoptionServices:
    """The parts of the door that the API uses."""

    found: FoundSatellites
    ours: Callable[[], Awaitable[Collection[str]]]
    "Returns the MACs of the satellites that are ours or connected."
    adopt: Callable[[FoundSatellite, str], Awaitable[Device]]


class AdoptionApi:
    """The handlers. services: None: the server does not look for satellites."""

    def __init__(self, services: AdoptionServices | None) -> None:
        self._services = services

    async def list_found(self, _: aioweb.Request) -> aioweb.Response:
        if self._services is None:
            return _json(FoundSatelliteList(is_searching=False, satellites=[]))
        ours = await self._services.ours()
        found = [
            FoundSatelliteView(one.hardware_id, one.name, one.host, one.needs_key)
            for one in self._services.found.online()
            if one.hardware_id not in ours
        ]
        return _json(FoundSatelliteList(is_searching=True, satellites=found))

    async def adopt(self, request: aioweb.Request) -> aioweb.Response:
        body = decode_json_body_or_empty(await request.read(), AdoptRequest)
        hardware_id = str(request.match_info["hardware_id"]).lower()
        found = None if self._services is None else self._services.found.find(hardware_id)
        if found is None or self._services is None:
            raise NotFound("no satellite announces this MAC now", code="satellite_not_found")
        device = await self._services.adopt(found, body.key)
        return _json(AdoptedDevice(device.id))


def adoption_routes(services: AdoptionServices | None) -> tuple[Route, ...]:
    """Returns the routes. services: None: the server does not look for satellites."""
    api = AdoptionApi(services)
    return (
        Route(
            "GET",
            PATH,
            api.list_found,
            "List the ESPHome satellites in the local network that can be adopted.",
            "devices",
            responses={200: FoundSatelliteList},
            error_codes=("storage_failed",),
            scope="manage",
        ),
        Route(
            "POST",
            f"{PATH}/{{hardware_id}}/adopt",
            api.adopt,
            "Adopt an ESPHome satellite: the server connects to it from now on.",
            "devices",
            request=AdoptRequest,
            responses={200: AdoptedDevice},
            error_codes=(
                "invalid_json",
                "invalid_value",
                "key_needed",
                "no_voice",
                "not_encrypted",
                "other_device",
                "satellite_not_found",
                "storage_failed",
                "unreachable",
                "wrong_key",
            ),
            scope="manage",
        ),
    )


def _json(body: object) -> aioweb.Response:
    return aioweb.Response(
        body=msgspec.json.encode(body), content_type=JSON, headers={"Cache-Control": "no-store"}
    )
