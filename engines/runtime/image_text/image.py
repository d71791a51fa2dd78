"""Decodes an image and prepares it for a tower, as transformers does.

Images come from clients, so the format, the number of pixels, the proportions and the processor
time are limited. The code runs in a model's worker process.
"""

import signal
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from types import FrameType
from typing import Any

import numpy as np
import numpy.typing as npt

from engines.runtime.image_text.folder import ImagePreparation

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP")
"Formats of images that are decoded. Only the first frame of an animation is used."

MAX_PIXELS = 30_000_000
"Most pixels of an image: twice those of most cameras' photos. Decoded, they take 120 MB."

MAX_ASPECT_RATIO = 50
"""Longest edge as a multiple of the shortest. The image is scaled by its shortest edge, so a long
thin one would become huge."""

MAX_DECODE_S = 5.0
"""Longest processor time to decode and prepare an image, in seconds. A photo takes 0.3 s. A JPEG of
some hundred kB can have thousands of passes over millions of pixels."""

Pixels = npt.NDArray[np.float32]


class UnusableImage(ValueError):
    """An image cannot be used. The message is the reason, such as `it is damaged`."""


class _DecodeTimeout(Exception):
    """The processor time has reached its limit."""


def prepare_image(data: bytes, preparation: ImagePreparation) -> Pixels:
    """Returns the values of an image for a tower, shape (3, size, size). `data`: the image's file.
    Raises UnusableImage."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with (
            _limited_time(),
            warnings.catch_warnings(action="error", category=Image.DecompressionBombWarning),
            Image.open(BytesIO(data), formats=FORMATS) as image,
        ):
            _check_size(*image.size)
            image.load()
            ImageOps.exif_transpose(image, in_place=True)
            # A copy of a large image takes as much memory again.
            colours = image if image.mode == "RGB" else image.convert("RGB")
            return _values(colours, preparation)
    except _DecodeTimeout:
        raise UnusableImage(f"it takes more than {MAX_DECODE_S:g} s to decode") from None
    except UnusableImage:
        raise
    except UnidentifiedImageError:
        allowed = ", ".join(FORMATS)
        raise UnusableImage(f"it is not an image in one of the formats {allowed}") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise UnusableImage(f"it has more than {MAX_PIXELS} pixels, the limit") from None
    # What Pillow raises for a damaged file depends on the format.
    except (OSError, ValueError, SyntaxError, EOFError, LookupError, TypeError, struct.error):
        raise UnusableImage("it is damaged or ends early") from None


def _check_size(width: int, height: int) -> None:
    """Checks the size in the file's header, before anything is decoded. Raises UnusableImage."""
    if width * height > MAX_PIXELS:
        raise UnusableImage(f"it has {width} x {height} pixels; at most {MAX_PIXELS} are allowed")
    if min(width, height) * MAX_ASPECT_RATIO < max(width, height):
        raise UnusableImage(
            f"it has {width} x {height} pixels; an edge may be at most {MAX_ASPECT_RATIO} times as"
            " long as the other"
        )


def _values(image: Any, preparation: ImagePreparation) -> Pixels:
    """Scales, cuts and normalises an RGB image. Returns shape (3, size, size)."""
    size, edge = preparation.size, preparation.resized_edge
    if edge is None:
        image = image.resize((size, size), preparation.filter)
    else:
        shortest, longest = sorted(image.size)
        longer = int(edge * longest / shortest)
        edges = (longer, edge) if image.width > image.height else (edge, longer)
        image = image.resize(edges, preparation.filter)
        left, top = ((length - size) // 2 for length in image.size)
        image = image.crop((left, top, left + size, top + size))
    scaled = np.asarray(image, np.float32) * np.float32(preparation.rescale_factor)
    mean, std = (np.array(part, np.float32) for part in (preparation.mean, preparation.std))
    return np.ascontiguousarray(((scaled - mean) / std).transpose(2, 0, 1))


@contextmanager
def _limited_time() -> Iterator[None]:
    """Raises _DecodeTimeout in the body after MAX_DECODE_S of processor time. Call it in the main
    thread. It works because Pillow decodes a file in pieces, and Python handles the signal between
    two of them."""

    def end(_: int, __: FrameType | None) -> None:
        raise _DecodeTimeout

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_DECODE_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
