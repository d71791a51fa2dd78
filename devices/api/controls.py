"""Settings of connected devices over the HTTP API: what the page shows as sliders and switches."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated

import msgspec
from aiohttp import web as aioweb
from msgspec import Meta, Struct

from core.errors import Conflict
from core.http.json_body import decode_json_body_or_empty
from core.http.routes import JSON, Route
from devices.fleet.directory import Device, DeviceProfile
from devices.fleet.presence import ControlChanges, ControllableDevice, DeviceControls, Presence
from devices.registry.registry import DeviceRegistry

MAX_ID_CHARS = 128
"Limit of an id that a device gave to a setting, and of an option."

Name = Annotated[str, Meta(min_length=1, max_length=MAX_ID_CHARS)]


class ControlRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """Changes of a device's settings; what is left out stays."""

    volume: Annotated[int, Meta(ge=0, le=100)] | None = None
    is_muted: bool | None = None
    is_microphone_off: bool | None = None
    wake_words: Annotated[list[Name], Meta(min_length=1, max_length=16)] | None = None
    "Ids of all wake words that shall be active."
    switches: Annotated[dict[Name, bool], Meta(max_length=16)] = {}
    "By id."
    selects: Annotated[dict[Name, Name], Meta(max_length=16)] = {}
    "By id."


class DeviceControlApi:
    """The handler."""

    def __init__(self, registry: DeviceRegistry, presence: Presence) -> None:
        self._registry, self._presence = registry, presence

    async def change(self, request: aioweb.Request) -> aioweb.Response:
        body = decode_json_body_or_empty(await request.read(), ControlRequest)
        device = await self._registry.by_id(str(request.match_info["device_id"]))
        live: object = self._presence.find(device.id)
        if live is None:
            raise Conflict(f"{device.name} is not connected now", code="device_away")
        if not isinstance(live, ControllableDevice):
            message = f"{device.name} ({device.kind}) has no settings that can be changed from here"
            raise Conflict(message, code="not_supported")
        await live.control(_changes(body))
        await self._keep(device, body)
        return aioweb.Response(
            body=msgspec.json.encode(live.controls),
            content_type=JSON,
            headers={"Cache-Control": "no-store"},
        )

    async def _keep(self, device: Device, body: ControlRequest) -> None:
        """Changes the profile, too, where it has a value of its own: that would undo the change at
        the next connection."""
        volume, words = body.volume, body.wake_words

        def changed(profile: DeviceProfile) -> DeviceProfile:
            if volume is not None and profile.volume is not None:
                profile = replace(profile, volume=volume)
            if words and profile.wake_word:
                profile = replace(profile, wake_word=words[0])
            return profile

        if changed(device.profile) != device.profile:
            await self._registry.edit(device.id, profile=changed)


def control_routes(api: DeviceControlApi) -> tuple[Route, ...]:
    return (
        Route(
            "POST",
            "/v1/devices/{device_id}/controls",
            api.change,
            "Change settings of a connected device: volume, mute, wake words, its own switches and"
            " choices. The device's view has the present ones in `controls`.",
            "devices",
            request=ControlRequest,
            responses={200: DeviceControls},
            error_codes=(
                "device_away",
                "device_not_found",
                "invalid_json",
                "invalid_value",
                "not_supported",
                "storage_failed",
            ),
            scope="manage",
        ),
    )


def _changes(body: ControlRequest) -> ControlChanges:
    switches: Mapping[str, bool] = body.switches
    return ControlChanges(
        volume=body.volume,
        is_muted=body.is_muted,
        is_microphone_off=body.is_microphone_off,
        wake_words=None if body.wake_words is None else tuple(dict.fromkeys(body.wake_words)),
        switches=switches,
        selects=body.selects,
    )
