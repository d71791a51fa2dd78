"""Routes of the HTTP API of the devices, for the server and its OpenAPI description."""

from core.http.routes import Route
from devices.api.controls import control_routes
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
_BODY_ERRORS = ("invalid_json", "invalid_value")
_DEVICE_ERRORS = ("device_not_found", "storage_failed")
_VOICE_ERRORS = ("unsupported_language", "voice_not_found")
_FIRMWARE_ERRORS = ("firmware_not_found", "firmware_url_refused")
_APPROVAL_ERRORS = ("pairing_code_expired", "pairing_code_needed", "pairing_code_unknown")
_PAIRING_ERRORS = (
    "pairing_code_expired",
    "pairing_code_unknown",
    "pairing_code_used",
    "too_many_guesses",
)


def routes(door: DevicesDoor) -> tuple[Route, ...]:
    return (
        *_list_routes(door),
        *_device_routes(door),
        *_actions(door),
        *control_routes(door.controls),
    )


def _list_routes(door: DevicesDoor) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/v1/devices",
            door.list_all,
            "List all known devices with their present state.",
            _TAG,
            responses={200: DeviceList},
            error_codes=("storage_failed",),
            scope="manage",
        ),
        Route(
            "GET",
            "/v1/devices/events",
            door.watch,
            "Watch the list of devices: server-sent events named `devices`, one at once and one"
            " after each change.",
            _TAG,
            response_content_type="text/event-stream",
            error_codes=("storage_failed", "too_many_watchers"),
            scope="manage",
        ),
        Route(
            "POST",
            "/v1/devices/pair",
            door.pair,
            "Approve the device that shows this pairing code.",
            _TAG,
            request=PairRequest,
            responses={200: DeviceView},
            error_codes=(*_BODY_ERRORS, *_PAIRING_ERRORS, "storage_failed"),
            scope="manage",
        ),
        Route(
            "POST",
            "/v1/areas/{area}/notify",
            door.notify_area,
            "Speak a notification on every device of an area.",
            _TAG,
            request=NotificationRequest,
            responses={200: AreaNotificationResult},
            error_codes=(*_BODY_ERRORS, *_VOICE_ERRORS, "area_not_found", "storage_failed"),
            scope="manage",
        ),
    )


def _device_routes(door: DevicesDoor) -> tuple[Route, ...]:
    path = "/v1/devices/{device_id}"
    return (
        Route(
            "GET",
            path,
            door.show,
            "Show one device.",
            _TAG,
            responses={200: DeviceView},
            error_codes=_DEVICE_ERRORS,
            scope="manage",
        ),
        Route(
            "POST",
            path,
            door.edit,
            "Change the name, area or profile of a device. Fields that are left out keep their"
            " value.",
            _TAG,
            request=DeviceEdit,
            responses={200: DeviceView},
            error_codes=(*_BODY_ERRORS, *_DEVICE_ERRORS, *_VOICE_ERRORS),
            scope="manage",
        ),
        Route(
            "DELETE",
            path,
            door.forget,
            "Delete a device: its keys become invalid and its connection is closed.",
            _TAG,
            responses={204: None},
            error_codes=_DEVICE_ERRORS,
            scope="manage",
        ),
        Route(
            "GET",
            f"{path}/log",
            door.log,
            "Show the latest events of a device. They never contain a transcript.",
            _TAG,
            responses={200: DeviceLog},
            error_codes=_DEVICE_ERRORS,
            scope="manage",
        ),
    )


def _actions(door: DevicesDoor) -> tuple[Route, ...]:
    path = "/v1/devices/{device_id}"
    return (
        Route(
            "POST",
            f"{path}/approve",
            door.approve,
            "Approve a device, even a blocked one. If it shows a pairing code, the code is"
            " required.",
            _TAG,
            request=ApproveRequest,
            responses={200: DeviceView},
            error_codes=(*_BODY_ERRORS, *_DEVICE_ERRORS, *_APPROVAL_ERRORS),
            scope="manage",
        ),
        Route(
            "POST",
            f"{path}/block",
            door.block,
            "Block a device: its keys become invalid and its connection is closed.",
            _TAG,
            responses={200: DeviceView},
            error_codes=_DEVICE_ERRORS,
            scope="manage",
        ),
        Route(
            "POST",
            f"{path}/notify",
            door.notify,
            "Speak a notification on a device, at once or when it next connects.",
            _TAG,
            request=NotificationRequest,
            responses={200: NotificationResult},
            error_codes=(
                *_BODY_ERRORS,
                *_DEVICE_ERRORS,
                *_VOICE_ERRORS,
                "device_not_approved",
                "not_supported",
            ),
            scope="manage",
        ),
        Route(
            "POST",
            f"{path}/restart",
            door.restart,
            "Restart a device.",
            _TAG,
            responses={200: DeviceActionResult},
            error_codes=(*_DEVICE_ERRORS, "device_away", "not_supported"),
            scope="manage",
        ),
        Route(
            "POST",
            f"{path}/update",
            door.update,
            "Install other firmware on a device.",
            _TAG,
            request=FirmwareUpdateRequest,
            responses={200: DeviceActionResult},
            error_codes=(
                *_BODY_ERRORS,
                *_DEVICE_ERRORS,
                *_FIRMWARE_ERRORS,
                "device_away",
                "not_supported",
            ),
            scope="manage",
        ),
        Route(
            "GET",
            f"{path}/firmware",
            door.firmware,
            "List the firmware that this server has for a device.",
            _TAG,
            responses={200: FirmwareList},
            error_codes=_DEVICE_ERRORS,
            scope="manage",
        ),
    )
