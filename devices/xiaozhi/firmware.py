"""Firmware for boards: images in a folder of this server, and their URLs."""

import logging
from pathlib import Path
from urllib.parse import quote

from aiohttp import web as aioweb

from core.tasks import run_in_thread
from devices.fleet.ota import FirmwareFolder, image_for
from devices.xiaozhi.ota_check import FirmwareOffer, is_newer

logger = logging.getLogger(__name__)

PATH = "/xiaozhi/ota/firmware"

_IMAGE = b"\xe9"
_MAGIC_AT, _MAGIC = slice(32, 36), bytes.fromhex("3254cdab")
_VERSION_AT = slice(48, 80)


class XiaozhiFirmware:
    """Images and updates. offers: boards learn of newer firmware when they start, and fetch it
    without asking."""

    def __init__(self, folder: FirmwareFolder, *, offers: bool) -> None:
        self.folder = folder
        self._offers = offers
        self._reported: set[tuple[Path, str]] = set()
        """Images whose own version differs from their folder's, with that version. Each is logged
        once."""

    async def url(self, base_url: str, board: str, wanted: str) -> str:
        """Returns the URL of a version, or of the newest; empty: there is none for this board.

        Raises RequestError.
        """
        found = await image_for(self.folder, board, wanted)
        return _url(base_url, found.version, board) if found else ""

    async def offer(self, base_url: str, board: str, version: str) -> FirmwareOffer | None:
        """Returns the offer for a board that starts with this version; None: it keeps what it
        has."""
        found = await run_in_thread(self._newest, board) if self._offers else None
        if not found or not is_newer(found, version):
            return None
        return FirmwareOffer(found, _url(base_url, found, board))

    async def send(self, version: str, board: str) -> aioweb.StreamResponse:
        """Returns the file, with a Content-Length because the board's firmware needs it.

        Raises RequestError, NotFound.
        """
        found = await run_in_thread(self.folder.find, version, board)
        headers = {"Content-Type": "application/octet-stream", "X-Checksum-SHA256": found.sha256}
        return aioweb.FileResponse(found.path, headers=headers)

    def _newest(self, board: str) -> str:
        """Returns the newest release whose own version is that of its folder; empty: there is
        none."""
        for image in self.folder.releases(board):
            own = version_in(image.path)
            if own in ("", image.version):
                return image.version
            self._log_mismatch(image.path, own)
        return ""

    def _log_mismatch(self, image: Path, own: str) -> None:
        if (image, own) in self._reported:
            return
        self._reported.add((image, own))
        logger.warning(
            "! xiaozhi: %s contains version %s; it is not offered, because boards would install"
            " it again at every start",
            image,
            own,
        )


def version_in(image: Path) -> str:
    """Returns the version inside of an ESP32 application image, printable.

    ESP-IDF, app image format: `esp_app_desc_t` after two headers. Empty: no such image, or no file.
    """
    try:
        with image.open("rb") as file:
            start = file.read(_VERSION_AT.stop)
    except OSError:
        return ""
    if len(start) < _VERSION_AT.stop or not (start[:1] == _IMAGE and start[_MAGIC_AT] == _MAGIC):
        return ""
    text = start[_VERSION_AT].partition(b"\0")[0].decode("ascii", "replace")
    return "".join(char if char.isprintable() else "?" for char in text)


def _url(base_url: str, version: str, board: str) -> str:
    return f"{base_url}{PATH}/{quote(version, safe='')}/{quote(board, safe='')}.bin"
