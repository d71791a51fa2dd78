"""Files of images, and references to them, in requests for embeddings."""

import asyncio
import struct
import zlib
from base64 import b64decode

import numpy as np

from core.errors import RequestError
from core.http.fetch_policy import HostAllowlist
from engines.base.text import MAX_IMAGE_BYTES
from engines.runtime.image_text.folder import BICUBIC, CLIP_NORM, ImagePreparation
from engines.runtime.image_text.image import UnusableImage, prepare_image
from tests.fuzz.target import Target
from web.images import RequestImages

PREPARATIONS = (
    ImagePreparation(8, 8, BICUBIC, 1 / 255, *CLIP_NORM),
    ImagePreparation(8, None, BICUBIC, 1 / 255),
)
IMAGES = RequestImages(HostAllowlist())


def _png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + bytes(range(3 * width)) for _ in range(height)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")


GIF = b64decode("R0lGODdhAQABAIAAAP///////ywAAAAAAQABAAACAkQBADs=")
BMP = b"BM" + struct.pack("<IIIIiiHHIIiiII", 70, 0, 54, 40, 2, 2, 1, 24, 0, 16, 0, 0, 0, 0)


def image_files(data: bytes) -> None:
    """Checks that a file gives values of the right shape, or a readable error."""
    for preparation in PREPARATIONS:
        try:
            values = prepare_image(data, preparation)
        except UnusableImage as error:
            assert 0 < len(str(error)) < 300
        else:
            assert values.shape == (3, 8, 8)
            assert np.isfinite(values).all()


def image_references(data: bytes) -> None:
    """Checks that a reference gives a file within its bounds, or an error of a known code."""
    try:
        (file,) = asyncio.run(IMAGES.load({"image": data.decode("utf-8", "replace")}))
    except RequestError as error:
        assert error.code in {"invalid_image", "image_too_large"}
        assert len(str(error)) < 1000
        str(error).encode()
    else:
        assert 0 < len(file) <= MAX_IMAGE_BYTES


TARGETS = (
    Target(name="image_files", one_input=image_files, seeds=(_png(9, 12), GIF, BMP + bytes(16))),
    Target(
        name="image_references",
        one_input=image_references,
        seeds=(b"data:image/png;base64,eA==", b"eA==", b"https://host:80/x.png"),
        words=("data:", ";base64", "image/jpeg", ";charset=utf-8", "http://"),
        few=5_000,
        many=100_000,
    ),
)
