"""Images of requests are taken from base64, `data:` URLs and allowed hosts, within limits."""

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address

import pytest
from aiohttp import web as aioweb

from core.errors import RequestError
from core.http.fetch_policy import HostAllowlist
from core.net.ip_addresses import IpAddress
from engines.base.text import MAX_IMAGE_BYTES
from web.images import MAX_IMAGES, RequestImages, places

pytestmark = pytest.mark.live

PNG = b"\x89PNG\r\n\x1a\n and so on"


@asynccontextmanager
async def image_host() -> AsyncIterator[str]:
    """Runs a host with images, at a name that the tests resolve themselves."""

    async def image(request: aioweb.Request) -> aioweb.Response:
        match request.match_info["name"]:
            case "good":
                return aioweb.Response(body=PNG, content_type="image/png")
            case "page":
                return aioweb.Response(text="hello")
            case "large":
                body = bytes(MAX_IMAGE_BYTES + 1)
                return aioweb.Response(body=body, content_type="image/png")
            case "private" if request.headers.get("X-Token") == "yes":
                return aioweb.Response(body=PNG, content_type="image/png")
            case "moved":
                raise aioweb.HTTPFound("/good")
            case _:
                raise aioweb.HTTPNotFound

    app = aioweb.Application()
    app.router.add_get("/{name}", image)
    runner = aioweb.AppRunner(app)
    await runner.setup()
    site = aioweb.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    yield f"http://localhost:{runner.addresses[0][1]}"
    await runner.cleanup()


async def _outside(_: str, __: int) -> Sequence[IpAddress]:
    return [ip_address("192.168.1.2")]


ALLOWED = RequestImages(HostAllowlist(["localhost"], _outside))


def load(
    references: Sequence[str],
    images: RequestImages = ALLOWED,
    headers: Mapping[str, str] | None = None,
) -> list[bytes]:
    """Returns the files. HOST in an address stands for the host of the tests."""

    async def run() -> list[bytes]:
        async with image_host() as host:
            named = [reference.replace("HOST", host) for reference in references]
            placed = dict(zip(places("image", len(named)), named, strict=True))
            return await images.load(placed, headers)

    return asyncio.run(run())


def test_images_come_as_base64_data_urls_or_addresses() -> None:
    text = b64encode(PNG).decode()
    assert load([text, f"data:image/png;base64,{text}", "HOST/good"]) == [PNG] * 3
    assert load(["HOST/private"], headers={"X-Token": "yes", "Host": "x"}) == [PNG]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("moved", "answered with status 302"),
        ("none", "answered with status 404"),
        ("page", "its type is 'text/plain'; allowed: image/jpeg"),
        ("large", f"more than {MAX_IMAGE_BYTES} bytes"),
    ],
)
def test_a_host_that_sends_something_else_is_an_error(path: str, why: str) -> None:
    with pytest.raises(RequestError, match=why):
        load([f"HOST/{path}"])


def test_only_named_hosts_at_safe_addresses_are_asked() -> None:
    for images, why in (
        (RequestImages(HostAllowlist()), r"setting models\.image_hosts"),
        (RequestImages(HostAllowlist(["localhost"])), "loopback"),
    ):
        with pytest.raises(RequestError, match=why):
            load(["HOST/good"], images)
    with pytest.raises(RequestError, match="no user name"):
        load(["http://me:secret@localhost/good"])


@pytest.mark.parametrize(
    ("reference", "code", "why"),
    [
        ("", "invalid_image", "no base64"),
        ("not base64!", "invalid_image", "no base64"),
        ("ftp://host/x.png", "invalid_image", "no address"),
        ("data:image/png;base64", "invalid_image", "must have a comma"),
        ("data:image/png,abc", "invalid_image", "content as base64"),
        ("data:text/html;base64,eA==", "invalid_image", "its type is 'text/html'"),
        ("A" * (MAX_IMAGE_BYTES * 2), "image_too_large", "more than"),
    ],
    ids=["empty", "text", "ftp", "comma", "plain", "html", "large"],
)
def test_other_references_are_refused(reference: str, code: str, why: str) -> None:
    with pytest.raises(RequestError, match=why) as caught:
        asyncio.run(ALLOWED.load({"image": reference}))
    assert (caught.value.code, caught.value.param) == (code, "image")


def test_there_is_a_largest_number_of_images() -> None:
    with pytest.raises(RequestError, match=f"at most {MAX_IMAGES}"):
        asyncio.run(ALLOWED.load(dict.fromkeys(places("image", MAX_IMAGES + 1), "eA==")))
