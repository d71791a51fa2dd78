"""Routes of the xiaozhi door.

They need no key of the server: the network decides about a check-in, the device's own key about a
connection.
"""

from core.http.routes import Route
from devices.xiaozhi.door import SOCKET_PATH, XiaozhiDoor
from devices.xiaozhi.firmware import PATH as IMAGES_PATH
from devices.xiaozhi.ota_check import MAX_BODY_BYTES, OtaCheckReply

_TAG = "xiaozhi"
_BY_NETWORK = ("device_blocked", "forbidden_network", "invalid_device_id", "storage_failed")


def routes(door: XiaozhiDoor) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/xiaozhi/ota/",
            door.explain_address,
            "Show a text that says that boards check in at this address.",
            _TAG,
            response_content_type="text/plain",
            is_public=True,
            scope="talk",
        ),
        Route(
            "POST",
            "/xiaozhi/ota/",
            door.check_in,
            "Check a board in when it starts. The reply says where to connect and with which key,"
            " or which pairing code to show.",
            _TAG,
            responses={200: OtaCheckReply},
            error_codes=_BY_NETWORK,
            is_public=True,
            max_body_bytes=MAX_BODY_BYTES,
            scope="talk",
        ),
        Route(
            "POST",
            "/xiaozhi/ota/activate",
            door.activate,
            "Ask whether the board has been approved: 200 if it has, 202 if not yet.",
            _TAG,
            responses={200: None, 202: None},
            error_codes=(*_BY_NETWORK, "device_not_found"),
            is_public=True,
            max_body_bytes=MAX_BODY_BYTES,
            scope="talk",
        ),
        Route(
            "GET",
            f"{IMAGES_PATH}/{{version}}/{{board}}.bin",
            door.firmware,
            "Download a firmware image for a board.",
            _TAG,
            response_content_type="application/octet-stream",
            error_codes=("firmware_not_found", "forbidden_network", "invalid_value"),
            is_public=True,
            scope="talk",
        ),
        Route(
            "GET",
            SOCKET_PATH,
            door.converse,
            "Connect a board: xiaozhi's messages and Opus audio over a WebSocket.",
            _TAG,
            responses={101: None},
            error_codes=(
                "bad_frame",
                "invalid_device_token",
                "server_full",
                "storage_failed",
                "too_many_waiting",
                "unsupported_protocol_version",
                "websocket_expected",
            ),
            is_public=True,
            scope="talk",
        ),
    )
