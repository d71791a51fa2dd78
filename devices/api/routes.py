"""Routes of the HTTP API of the devices, for the server and its OpenAPI description."""

from core.http.routes import Route
from devices.api.door import DeviceLog, DevicesDoor
from devices.api.views import (
    ApproveRequest,
    AreaNotificationResult,
    DeviceActionResult,
    DeviceEdit,
    DeviceList,
    DeviceView,
    FirmwareList,
    FirmwareUpdateRequest,
    NotificationRequest,
    NotificationResult,
    PairRequest,
)

_TAG = "devices"
_BODY = ("invalid_json", "invalid_value")
_ONE = ("device_not_found", "storage_failed")
_FIRMWARE = ("firmware_not_found", "firmware_url_refused")
_APPROVING = ("pairing_code_expired", "pairing_code_needed", "pairing_code_unknown")
_PAIRING = (
    "pairing_code_expired",
    "pairing_code_unknown",
    "pairing_code_used",
    "too_many_guesses",
)


def routes(door: DevicesDoor) -> tuple[Route, ...]:
    return (*_all(door), *_one(door), *_actions(door))


def _all(door: DevicesDoor) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/devices",
            door.list_all,
            "Every known device, and what it does now.",
            _TAG,
            responses={200: DeviceList},
            error_codes=("storage_failed",),
        ),
        Route(
            "GET",
            "/v1/devices/events",
            door.watch,
            "Server-sent events named `devices`: the list at once, then after each change.",
            _TAG,
            response_content_type="text/event-stream",
            error_codes=("storage_failed", "too_many_watchers"),
        ),
        Route(
            "POST",
            "/v1/devices/pair",
            door.pair,
            "Approve the device that shows this code.",
            _TAG,
            request=PairRequest,
            responses={200: DeviceView},
            error_codes=(*_BODY, *_PAIRING, "storage_failed"),
        ),
        Route(
            "POST",
            "/v1/areas/{area}/notify",
            door.notify_area,
            "Say something on every device of an area.",
            _TAG,
            request=NotificationRequest,
            responses={200: AreaNotificationResult},
            error_codes=(*_BODY, "area_not_found", "storage_failed"),
        ),
    )


def _one(door: DevicesDoor) -> tuple[Route, ...]:
    path = "/v1/devices/{device_id}"
    return (
        Route(
            "GET",
            path,
            door.show,
            "One device.",
            _TAG,
            responses={200: DeviceView},
            error_codes=_ONE,
        ),
        Route(
            "POST",
            path,
            door.edit,
            "Name it, say where it stands, or change its profile; what is not given stays.",
            _TAG,
            request=DeviceEdit,
            responses={200: DeviceView},
            error_codes=(*_BODY, *_ONE, "unsupported_language", "voice_not_found"),
        ),
        Route(
            "DELETE",
            path,
            door.forget,
            "Forget it: its keys are void, its connection ends.",
            _TAG,
            responses={204: None},
            error_codes=_ONE,
        ),
        Route(
            "GET",
            f"{path}/log",
            door.log,
            "The last things that happened on it; never words.",
            _TAG,
            responses={200: DeviceLog},
            error_codes=_ONE,
        ),
    )


def _actions(door: DevicesDoor) -> tuple[Route, ...]:
    path = "/v1/devices/{device_id}"
    return (
        Route(
            "POST",
            f"{path}/approve",
            door.approve,
            "Serve it from now on, also one that was blocked; with the code that it shows, if any.",
            _TAG,
            request=ApproveRequest,
            responses={200: DeviceView},
            error_codes=(*_BODY, *_ONE, *_APPROVING),
        ),
        Route(
            "POST",
            f"{path}/block",
            door.block,
            "Serve it no more: its keys are void, its connection ends.",
            _TAG,
            responses={200: DeviceView},
            error_codes=_ONE,
        ),
        Route(
            "POST",
            f"{path}/notify",
            door.notify,
            "Say something on it, or at its next contact.",
            _TAG,
            request=NotificationRequest,
            responses={200: NotificationResult},
            error_codes=(*_BODY, *_ONE, "device_not_approved", "not_supported"),
        ),
        Route(
            "POST",
            f"{path}/restart",
            door.restart,
            "Reboot it.",
            _TAG,
            responses={200: DeviceActionResult},
            error_codes=(*_ONE, "device_away", "not_supported"),
        ),
        Route(
            "POST",
            f"{path}/update",
            door.update,
            "Give it other firmware.",
            _TAG,
            request=FirmwareUpdateRequest,
            responses={200: DeviceActionResult},
            error_codes=(*_BODY, *_ONE, *_FIRMWARE, "device_away", "not_supported"),
        ),
        Route(
            "GET",
            f"{path}/firmware",
            door.firmware,
            "The firmware that this server has for it.",
            _TAG,
            responses={200: FirmwareList},
            error_codes=_ONE,
        ),
    )
