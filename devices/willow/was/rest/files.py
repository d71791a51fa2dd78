"""Files that devices fetch: firmware, and sounds of notifications."""

from mimetypes import guess_type
from pathlib import Path

import msgspec
from aiohttp import web as aioweb

from core.errors import NotFound, RequestError
from core.tasks import run_in_thread
from devices.fleet.ota import check_name
from devices.willow.was.door import OTA_PATH, WasDoor
from devices.willow.was.rest.body import read_path
from devices.willow.wis.params import invalid, text_of

ASSET_TYPES = ("audio", "image", "other")
"Allowed values of the parameter `type`; the first two set the content type."

AUDIO = {b"RIFF": "audio/wav", b"fLaC": "audio/flac"}
"First bytes of the formats that the firmware plays, as in WAS."


class WasFiles:
    """HTTP handlers for files. Responses have a Content-Length, because the firmware needs it."""

    def __init__(self, door: WasDoor) -> None:
        self._door = door

    async def firmware(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `GET /api/ota?version=&platform=`."""
        version, board = text_of(request.query, "version"), text_of(request.query, "platform")
        found = await run_in_thread(self._door.firmware.find, version, board)
        headers = {"Content-Type": "application/octet-stream", "X-Checksum-SHA256": found.sha256}
        return aioweb.FileResponse(found.path, headers=headers)

    async def asset(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `GET /api/asset?asset=&type=`."""
        kind = text_of(request.query, "type")
        if kind not in ASSET_TYPES:
            raise invalid("type", kind, ", ".join(ASSET_TYPES))
        name = check_name("asset", text_of(request.query, "asset"))
        path = self._door.assets / kind / name
        content_type = await run_in_thread(_content_type, path, kind)
        return aioweb.FileResponse(path, headers={"Content-Type": content_type})

    async def releases(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /api/release?type=was|willow`, in WAS's form."""
        kind = text_of(request.query, "type")
        if kind not in ("was", "willow"):
            raise invalid("type", kind, "was, willow")
        base = f"{request.scheme}://{request.host}"
        found: dict[str, list[dict[str, object]]] = {}
        for image in await run_in_thread(self._door.firmware.all):
            url = f"{base}{OTA_PATH}?version={image.version}&platform={image.board}"
            asset = {
                "name": f"willow-ota-{image.board}.bin",
                "platform": image.board,
                "platform_name": image.board,
                "build_type": "ota",
                "size": image.size_bytes,
                "sha256": image.sha256,
                "was_url": url,
                "browser_download_url": url,
                "cached": True,
            }
            found.setdefault(image.version, []).append(asset)
        listed = [
            {"name": version, "tag_name": version, "assets": assets}
            for version, assets in found.items()
        ]
        return aioweb.Response(body=msgspec.json.encode(listed), content_type="application/json")

    async def change(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `POST /api/release?action=delete` with `{"path": "VERSION/BOARD.bin"}`."""
        action = text_of(request.query, "action")
        if action != "delete":
            raise invalid("action", action, "delete")
        version, board = read_path(await request.read())
        await run_in_thread(self._door.firmware.delete, version, board)
        return aioweb.json_response("Success")


def _content_type(path: Path, kind: str) -> str:
    """Returns the content type of an asset. Blocks.

    Raises NotFound, and RequestError for sound that no device plays.
    """
    if path.is_symlink() or path.parent.is_symlink() or not path.is_file():
        raise NotFound("there is no such asset", code="asset_not_found", param="asset")
    if kind != "audio":
        return guess_type(path.name)[0] or "application/octet-stream"
    with path.open("rb") as file:
        head = file.read(4)
    if head not in AUDIO:
        raise RequestError("devices play WAV and FLAC", code="unsupported_audio", param="asset")
    return AUDIO[head]
