"""Routes of the application server, which has a listener of its own."""

from collections.abc import Iterable
from dataclasses import replace

from core.http.routes import Route
from devices.willow.was.door import OTA_PATH, WasDoor
from devices.willow.was.rest.files import WasFiles
from devices.willow.was.rest.handlers import WasRest

_TAG = "willow"

DEVICE_PATHS = frozenset({("POST", "/api/willow"), ("GET", "/api/tts")})
"Requests of devices to an inference server; here they need no key, because devices have none."


def was_routes(door: WasDoor, inference: Iterable[Route]) -> tuple[Route, ...]:
    """Returns all routes. inference: the routes of Willow's inference server.

    The routes that devices use are open to the addresses of approved devices, and so are firmware
    and sounds. All others need the key.
    """
    return (
        *(_for_devices(door, one) for one in inference),
        Route(
            "GET",
            "/ws",
            door.serve,
            "A device's socket: JSON text frames, as its firmware has them.",
            _TAG,
            responses={101: None},
            error_codes=("server_full", "websocket_expected"),
            admits_peer=door.admits,
        ),
        *_files(door),
        *_rest(WasRest(door)),
    )


def _for_devices(door: WasDoor, route: Route) -> Route:
    if (route.method, route.path) not in DEVICE_PATHS:
        return route
    return replace(route, admits_peer=door.roster.admits)


def _files(door: WasDoor) -> tuple[Route, ...]:
    files, admits = WasFiles(door), door.roster.admits
    return (
        Route(
            "GET",
            OTA_PATH,
            files.firmware,
            "A firmware image.",
            _TAG,
            response_content_type="application/octet-stream",
            response_headers={"X-Checksum-SHA256": "Of the file, in hex digits."},
            query={"version": "Its folder.", "platform": "The board: its file without `.bin`."},
            error_codes=("firmware_not_found", "invalid_value"),
            admits_peer=admits,
        ),
        Route(
            "GET",
            "/api/asset",
            files.asset,
            "A file of the folder assets.",
            _TAG,
            response_content_type="application/octet-stream",
            query={"asset": "Its name.", "type": "audio, image or other: its folder."},
            error_codes=("asset_not_found", "invalid_value", "unsupported_audio"),
            admits_peer=admits,
        ),
        Route(
            "GET",
            "/api/release",
            files.releases,
            "The firmware that is here, with checksums.",
            _TAG,
            query={"type": "was or willow; both are the same."},
            error_codes=("invalid_value",),
        ),
        Route(
            "POST",
            "/api/release",
            files.change,
            "Delete a firmware image.",
            _TAG,
            query={"action": "delete."},
            error_codes=("firmware_not_found", "invalid_json", "invalid_value"),
        ),
    )


def _rest(rest: WasRest) -> tuple[Route, ...]:
    hostname = "A device's hostname, MAC or id: its own settings; otherwise everybody's."
    return (
        Route("GET", "/api/client", rest.clients, "Approved devices that are connected.", _TAG),
        Route(
            "POST",
            "/api/client",
            rest.act,
            "Restart, identify, update or name a device, or notify one or all.",
            _TAG,
            query={"action": "config (its label and area), identify, notify, restart or update."},
            error_codes=(
                "audio_url_refused",
                "device_not_found",
                "firmware_not_found",
                "firmware_url_refused",
                "invalid_json",
                "invalid_value",
                "server_full",
                "storage_failed",
            ),
        ),
        Route(
            "GET",
            "/api/config",
            rest.config,
            "What devices are told of configuration; secrets are masked.",
            _TAG,
            query={
                "type": "config, ha_token, ha_url, multinet, nvs, tz or was.",
                "default": "true: what holds where nothing is set.",
                "hostname": hostname,
            },
            error_codes=("device_not_found", "invalid_value"),
        ),
        Route(
            "POST",
            "/api/config",
            rest.configure,
            "Set it, and with apply=true send it: the devices reboot.",
            _TAG,
            query={"type": "config, nvs or was.", "apply": "true or false.", "hostname": hostname},
            error_codes=(
                "device_not_found",
                "invalid_json",
                "invalid_value",
                "secrets_not_sent",
                "too_large",
            ),
        ),
        Route("GET", "/api/info", rest.info, "The version of this server.", _TAG),
        Route(
            "GET",
            "/api/status",
            rest.status,
            "What is connected and what waits.",
            _TAG,
            query={"type": "asyncio_tasks, connmgr or notify_queue."},
            error_codes=("invalid_value",),
        ),
    )
