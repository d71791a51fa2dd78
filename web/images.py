"""Images in requests: as base64, as a `data:` URL, or as the address of a file on a host that the
operator allowed.

Nothing is decoded here. A model's worker does that, see `engines.runtime.image_text.image`.
"""

import asyncio
import binascii
import re
from base64 import b64decode
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiohttp import ClientError, ClientSession, ClientTimeout
from aiohttp import web as aioweb

from core.access.limits import CapacityLimit
from core.errors import PayloadTooLarge, RequestError
from core.http.fetch_policy import HostAllowlist, UrlNotAllowed, parse_fetch_target
from engines.base.text import MAX_IMAGE_BYTES

MAX_IMAGES = 64
"Largest number of images of one request: a small machine computes them in some seconds."

MAX_BODY_BYTES = 24 * 1024 * 1024
"Largest body of a request with images: two of the largest as base64, or 64 of 280 kB."

MAX_LARGE_BODIES = 8
"Requests whose bodies are larger than usual that are in memory at once: some 200 MB."

RETRY_AFTER_S = 2

FETCH_TIMEOUT_S = 5.0
"Longest time to fetch an image, in seconds."

MAX_HEADERS = 16
"Largest number of headers that a client may have sent along to the host of an image."

IMAGE_TYPES = ("image/jpeg", "image/png", "image/webp", "image/gif", "image/bmp")
"Content types of the formats that are decoded."

HOSTS_SETTING = "models.image_hosts"
"Setting with the hosts that images are fetched from. It is named in errors."

_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)
_OUR_HEADERS = frozenset({"connection", "content-length", "host", "transfer-encoding"})
"Headers that belong to the connection; a client's are not sent on."


class RequestImages:
    """Reads the images of requests for all doors."""

    def __init__(self, hosts: HostAllowlist) -> None:
        """`hosts`: hosts that images may be fetched from."""
        self._hosts = hosts
        self._large_bodies = CapacityLimit(
            MAX_LARGE_BODIES,
            "{limit} large requests are being answered, the limit",
            retry_after_s=RETRY_AFTER_S,
            code="too_many_requests",
        )

    @asynccontextmanager
    async def body(self, request: aioweb.Request) -> AsyncIterator[bytes]:
        """Yields the body of a request. A body above the server's own limit must have a
        Content-Length, and takes one of few places until the request is answered.

        Raises PayloadTooLarge, OverloadedError too_many_requests.
        """
        if (request.content_length or 0) <= request.client_max_size:
            yield await request.read()
            return
        with self._large_bodies.take():
            yield await read_body(request, MAX_BODY_BYTES)

    async def load(
        self, references: Mapping[str, str], headers: Mapping[str, str] | None = None
    ) -> list[bytes]:
        """Returns the files of images, in their order. `references`: place in the request, for
        errors -> base64, `data:` URL or address; see `places`. `headers`: headers for the hosts of
        the addresses.

        Raises RequestError array_above_max_length, invalid_image, image_too_large.
        """
        if len(references) > MAX_IMAGES:
            param = next(iter(references)).partition("[")[0]
            raise RequestError(
                f"Invalid '{param}': {len(references)} images; at most {MAX_IMAGES} are allowed.",
                code="array_above_max_length",
                param=param,
            )
        files: list[bytes] = []
        for place, reference in references.items():
            if reference.startswith(("http://", "https://")):
                file = await self._fetch(reference, place, headers or {})
            else:
                # Some milliseconds for a large one: too long for the loop, which serves calls, too.
                file = await asyncio.to_thread(_decode, reference, place)
            if len(file) > MAX_IMAGE_BYTES:
                raise _too_large(place)
            files.append(file)
        return files

    async def _fetch(self, url: str, place: str, headers: Mapping[str, str]) -> bytes:
        """Returns the file at an address. Redirects are not followed: they may lead anywhere."""
        why = f"the server fetches images only from the hosts of its setting {HOSTS_SETTING}"
        try:
            target = parse_fetch_target(url)
            if not self._hosts.has(target):
                raise invalid_image(place, why)
            await self._hosts.check_address(target)
        except UrlNotAllowed as error:
            raise invalid_image(place, str(error)) from None
        sent = {name: value for name, value in headers.items() if name.lower() not in _OUR_HEADERS}
        if len(sent) > MAX_HEADERS:
            raise invalid_image(place, f"at most {MAX_HEADERS} headers are sent to its host")
        try:
            # Without the environment's proxy, which would resolve the name again.
            async with (
                ClientSession(timeout=ClientTimeout(total=FETCH_TIMEOUT_S)) as session,
                session.get(url, headers=sent, allow_redirects=False) as response,
            ):
                if response.status != 200:
                    raise invalid_image(place, f"its host answered with status {response.status}")
                if response.content_type not in IMAGE_TYPES:
                    raise _wrong_type(place, response.content_type)
                file = bytearray()
                async for piece in response.content.iter_any():
                    file += piece
                    if len(file) > MAX_IMAGE_BYTES:
                        raise _too_large(place)
                return bytes(file)
        except TimeoutError:
            why = f"its host did not send it within {FETCH_TIMEOUT_S:g} s"
            raise invalid_image(place, why) from None
        except (ClientError, OSError, ValueError):
            raise invalid_image(place, "its host cannot be reached") from None


async def read_body(request: aioweb.Request, limit_bytes: int) -> bytes:
    """Returns a body that may be larger than the server's own limit. Raises PayloadTooLarge."""
    body = bytearray()
    async for piece in request.content.iter_any():
        body += piece
        if len(body) > limit_bytes:
            raise PayloadTooLarge(f"the body has more than {limit_bytes} bytes, the limit")
    return bytes(body)


def places(param: str, count: int) -> list[str]:
    """Returns the names of `count` values of a field, for errors: `image[0]`, or only `image` if
    there is one."""
    return [f"{param}[{index}]" for index in range(count)] if count > 1 else [param] * count


def invalid_image(place: str, why: str) -> RequestError:
    """Returns the error for an image. `place`: its field. `why`: the rest of a sentence about
    it."""
    return RequestError(f"Invalid image in '{place}': {why}.", code="invalid_image", param=place)


def _decode(reference: str, place: str) -> bytes:
    head = _DATA_URL.match(reference)
    if head is None and reference.startswith("data:"):
        raise invalid_image(place, "a data: URL must have a comma before its content")
    if head is not None and head[1].lower() not in IMAGE_TYPES:
        raise _wrong_type(place, head[1])
    if head is not None and not head[2].lower().endswith(";base64"):
        raise invalid_image(place, "a data: URL must have its content as base64")
    text = reference[head.end() :] if head else reference
    if len(text) > MAX_IMAGE_BYTES * 4 // 3 + 4:
        raise _too_large(place)
    try:
        file = b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        file = b""
    if not file:
        why = "it is no base64, no data: URL and no address that begins with http:// or https://"
        raise invalid_image(place, why)
    return file


def _wrong_type(place: str, found: str) -> RequestError:
    allowed = ", ".join(IMAGE_TYPES)
    return invalid_image(place, f"its type is {found[:64]!r}; allowed: {allowed}")


def _too_large(place: str) -> RequestError:
    return RequestError(
        f"Invalid image in '{place}': its file has more than {MAX_IMAGE_BYTES} bytes, the limit.",
        code="image_too_large",
        param=place,
    )
