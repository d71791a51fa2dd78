"""Images are prepared as transformers does it; hostile ones are refused with the reason."""

import struct
import zlib
from io import BytesIO

import numpy as np
import pytest

from engines.runtime.image_text import image as image_module
from engines.runtime.image_text.folder import BICUBIC, CLIP_NORM, ImagePreparation
from engines.runtime.image_text.image import MAX_PIXELS, UnusableImage, prepare_image
from tests.engines.clip.tiny_clip import picture

pil_image = pytest.importorskip("PIL.Image", reason="the extra clip is not installed")

CROPPED = ImagePreparation(32, 32, BICUBIC, 1 / 255, *CLIP_NORM)
SQUEEZED = ImagePreparation(32, None, BICUBIC, 1 / 255, (0.5,) * 3, (0.5,) * 3)


def _png(width: int, height: int, data: bytes = b"") -> bytes:
    """Returns a PNG file that claims a size, with the given compressed data."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + checksum

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = chunk(b"IHDR", head) + chunk(b"IDAT", data) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


def _colour(image: object) -> bytes:
    file = BytesIO()
    image.save(file, "PNG")  # type: ignore[attr-defined]
    return file.getvalue()


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF", "BMP"])
def test_every_format_becomes_values_of_the_towers_size(form: str) -> None:
    values = prepare_image(picture(70, 50, form), CROPPED)
    assert values.shape == (3, 32, 32)
    assert values.dtype == np.float32
    assert np.isfinite(values).all()


def test_the_middle_is_cut_out_or_the_image_is_squeezed() -> None:
    wide = pil_image.new("RGB", (96, 32), (255, 0, 0))
    wide.paste((0, 0, 255), (32, 0, 64, 32))
    cropped = prepare_image(_colour(wide), CROPPED)
    mean, std = CLIP_NORM
    np.testing.assert_allclose(cropped[0], (0 - mean[0]) / std[0], atol=1e-5)
    np.testing.assert_allclose(cropped[2], (1 - mean[2]) / std[2], atol=1e-5)
    squeezed = prepare_image(_colour(wide), SQUEEZED)
    assert squeezed[0, 16, 0] == pytest.approx(1)
    assert squeezed[0, 16, 16] == pytest.approx(-1)


def test_a_photo_is_turned_upright_and_loses_its_transparency() -> None:
    upright = pil_image.new("RGB", (32, 32), (255, 0, 0))
    upright.paste((0, 255, 0), (0, 0, 32, 16))
    turned = upright.rotate(90)
    file = BytesIO()
    exif = pil_image.Exif()
    exif[0x0112] = 6  # the camera was turned by 90 degrees
    turned.save(file, "PNG", exif=exif)
    expected = prepare_image(_colour(upright), SQUEEZED)
    np.testing.assert_allclose(prepare_image(file.getvalue(), SQUEEZED), expected)
    clear = upright.convert("RGBA")
    np.testing.assert_allclose(prepare_image(_colour(clear), SQUEEZED), expected)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not an image in one of the formats JPEG, PNG, WEBP, GIF, BMP"),
        (b"<svg/>", "not an image in one of the formats"),
        (picture()[:200], "it is damaged or ends early"),
        (picture(form="JPEG")[:400], "it is damaged or ends early"),
        (_png(10_000, 8_000), f"10000 x 8000 pixels; at most {MAX_PIXELS} are allowed"),
        (_png(10_000, 10_000), f"more than {MAX_PIXELS} pixels"),
        (_png(2**31 - 1, 2**31 - 1), "pixels"),
        (_png(3000, 2), "an edge may be at most 50 times as long as the other"),
        (_png(32, 32, zlib.compress(b"")), "it is damaged or ends early"),
        (_png(0, 0), "not an image in one of the formats|damaged"),
    ],
)
def test_an_image_that_cannot_be_used_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(UnusableImage, match=why):
        prepare_image(data, CROPPED)


def test_an_image_that_takes_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_module, "MAX_DECODE_S", 0.001)
    monkeypatch.setattr(image_module, "_values", _endless)
    with pytest.raises(UnusableImage, match=r"more than 0\.001 s to decode"):
        prepare_image(picture(), CROPPED)
    monkeypatch.undo()
    assert prepare_image(picture(), CROPPED).shape == (3, 32, 32)


def _endless(*_: object) -> None:
    while True:
        pass
