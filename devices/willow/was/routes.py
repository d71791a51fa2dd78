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
        *(_for_devices(door, route) for route in inference),
        Route(
            "GET",
            "/ws",
            door.serve,
            "Connect a device: a WebSocket with the JSON text frames of Willow's firmware.",
            _TAG,
            responses={101: None},
            error_codes=("server_full", "websocket_expected"),
            admits_peer=door.admits,
            scope="talk",
        ),
        *_files(door),
        *_rest_routes(WasRest(door)),
    )


def _for_devices(door: WasDoor, route: Route) -> Route:
    if (route.method, route.path) not in DEVICE_PATHS:
        return route
    return replace(route, admits_peer=door.connected_devices.admits)


def _files(door: WasDoor) -> tuple[Route, ...]:
    files, admits = WasFiles(door), door.connected_devices.admits
    return (
        Route(
            "GET",
            OTA_PATH,
            files.firmware,
            "Download a firmware image.",
            _TAG,
            response_content_type="application/octet-stream",
            response_headers={"X-Checksum-SHA256": "SHA-256 of the file, in hexadecimal digits."},
            query={
                "version": "Version of the firmware: the folder of the image.",
                "platform": ("Name of the board: the file name without `.bin`."),
            },
            error_codes=("firmware_not_found", "invalid_value"),
            admits_peer=admits,
            scope="talk",
        ),
        Route(
            "GET",
            "/api/asset",
            files.asset,
            "Download a file of the folder `assets`.",
            _TAG,
            response_content_type="application/octet-stream",
            query={
                "asset": "Name of the file.",
                "type": ("Folder of the file: audio, image or other."),
            },
            error_codes=("asset_not_found", "invalid_value", "unsupported_audio"),
            admits_peer=admits,
            scope="talk",
        ),
        Route(
            "GET",
            "/api/release",
            files.releases,
            "List the firmware images of this server, with checksums.",
            _TAG,
            query={"type": "was or willow; both give the same list."},
            error_codes=("invalid_value",),
            scope="manage",
        ),
        Route(
            "POST",
            "/api/release",
            files.change,
            "Delete a firmware image.",
            _TAG,
            query={"action": "Only `delete`."},
            error_codes=("firmware_not_found", "invalid_json", "invalid_value"),
            scope="manage",
        ),
    )


def _rest_routes(rest: WasRest) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/api/client",
            rest.clients,
            "List the approved devices that are connected.",
            _TAG,
            scope="manage",
        ),
        Route(
            "POST",
            "/api/client",
            rest.act,
            "Restart, identify, update or rename a device, or notify one device or all.",
            _TAG,
            query={
                "action": (
                    "config (label and area of the device), identify, notify, restart or update."
                )
            },
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
            scope="manage",
        ),
        *_config_routes(rest),
        Route(
            "GET", "/api/info", rest.info, "Show the version of this server.", _TAG, scope="manage"
        ),
        Route(
            "GET",
            "/api/status",
            rest.status,
            "Show connected devices and waiting notifications.",
            _TAG,
            query={"type": "asyncio_tasks, connmgr or notify_queue."},
            error_codes=("invalid_value",),
            scope="manage",
        ),
    )


def _config_routes(rest: WasRest) -> tuple[Route, ...]:
    hostname = (
        "Hostname, MAC address or id of a device, for its own settings. Without it: the settings"
        " of all devices."
    )
    return (
        Route(
            "GET",
            "/api/config",
            rest.config,
            "Show the settings that are sent to devices, with secrets masked.",
            _TAG,
            query={
                "type": "config, ha_token, ha_url, multinet, nvs, tz or was.",
                "default": "true: return the default values instead of the stored ones.",
                "hostname": hostname,
            },
            error_codes=("device_not_found", "invalid_value"),
            scope="manage",
        ),
        Route(
            "POST",
            "/api/config",
            rest.configure,
            "Store settings for devices. With apply=true they are also sent, and the devices"
            " reboot.",
            _TAG,
            query={
                "type": "config, nvs or was.",
                "apply": ("true: send the settings to the devices now. false: only store them."),
                "hostname": hostname,
            },
            error_codes=(
                "device_not_found",
                "invalid_json",
                "invalid_value",
                "secrets_not_sent",
                "too_large",
            ),
            scope="manage",
        ),
    )
