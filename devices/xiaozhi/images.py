"""Firmware for boards: images in a folder of this server, and where a board fetches them."""

from urllib.parse import quote

from aiohttp import web as aioweb

from core.threads import in_thread
from devices.ota import FirmwareFolder, image_for
from devices.xiaozhi.check_in import Firmware, is_newer

PATH = "/xiaozhi/ota/firmware"


class Images:
    """`offers`: boards are told of newer firmware when they start, and fetch it unasked."""

    def __init__(self, folder: FirmwareFolder, *, offers: bool) -> None:
        self.folder = folder
        self._offers = offers

    async def url(self, base_url: str, board: str, wanted: str) -> str:
        """Of a version, or of the newest; empty: there is none for this board. Raises
        RequestError."""
        found = await image_for(self.folder, board, wanted)
        return _url(base_url, found.version, board) if found else ""

    async def offer(self, base_url: str, board: str, version: str) -> Firmware | None:
        """What a board of this version is told when it starts; None: it keeps what it has."""
        newest = await in_thread(self.folder.newest, board) if self._offers else None
        if newest is None or not is_newer(newest.version, version):
            return None
        return Firmware(newest.version, _url(base_url, newest.version, board))

    async def send(self, version: str, board: str) -> aioweb.StreamResponse:
        """With a Content-Length: the firmware takes no other (sheet section 1). Raises
        RequestError, NotFound."""
        found = await in_thread(self.folder.find, version, board)
        headers = {"Content-Type": "application/octet-stream", "X-Checksum-SHA256": found.sha256}
        return aioweb.FileResponse(found.path, headers=headers)


def _url(base_url: str, version: str, board: str) -> str:
    return f"{base_url}{PATH}/{quote(version, safe='')}/{quote(board, safe='')}.bin"
