"""The page: its files are read once, and sent with ETags and a policy that allows nothing from
other sites."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path

from aiohttp import web as aioweb

from core.errors import NotFound
from core.http.routes import Route

STATIC = Path(__file__).parent / "static"

CONTENT_TYPES: Mapping[str, str] = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".webmanifest": "application/manifest+json",
}
"Types of the page's files. Other files in the folder are not served."

SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "img-src 'self'",
            "connect-src 'self'",
            "media-src 'self'",
            "manifest-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    ),
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Opener-Policy": "same-origin",
}


INGRESS_PATH = "X-Ingress-Path"
"Header with which Home Assistant's ingress says below which path the page is."


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file of the page, ready to be sent."""

    body: bytes
    content_type: str
    etag: str
    "Digest of the body in quotes, as the header ETag has it."


@cache  # for all ports of a server
def load(folder: Path = STATIC) -> Mapping[str, PageFile]:
    """Reads all files of the page, by their path below `folder`. Blocking: call it at the start."""
    return {
        path.relative_to(folder).as_posix(): _page_file(path)
        for path in sorted(folder.rglob("*"))
        if path.suffix in CONTENT_TYPES
    }


def _page_file(path: Path) -> PageFile:
    body = path.read_bytes()
    etag = f'"{sha256(body).hexdigest()[:32]}"'
    return PageFile(body, CONTENT_TYPES[path.suffix], etag)


def page_routes(folder: Path = STATIC) -> tuple[Route, ...]:
    """Returns the routes of `/` and its files. Both need no key: they hold no data of the user."""
    files = load(folder)
    return (_html_route("/", files["index.html"], "Show the page."), _files_route(files))


def willow_page_routes() -> tuple[Route, ...]:
    """Returns Willow's pages and their files, for a port that has no other page."""
    files = load(STATIC)
    return (*willow_pages(files), _files_route(files))


def willow_pages(files: Mapping[str, PageFile] | None = None) -> tuple[Route, ...]:
    """Returns Willow's pages without their files, for a port that also has `page_routes`."""
    file = (files or load(STATIC))["willow/index.html"]
    summary = "Show Willow's page: speech to text over WebRTC, and questions to the assistant."
    return tuple(_html_route(path, file, summary) for path in ("/rtc", "/chatbot"))


def _html_route(path: str, file: PageFile, summary: str) -> Route:
    async def page(request: aioweb.Request) -> aioweb.Response:
        return _file_response(request, file)

    return Route(
        "GET",
        path,
        page,
        summary,
        "page",
        response_content_type="text/html",
        is_public=True,
        scope="talk",
    )


def _files_route(files: Mapping[str, PageFile]) -> Route:
    async def static(request: aioweb.Request) -> aioweb.Response:
        path = request.match_info["path"]
        if path not in files:
            raise NotFound(f"the page has no file {path[:80]!r}")
        return _file_response(request, files[path])

    return Route(
        "GET",
        "/static/{path:.+}",
        static,
        "Download a file of the page.",
        "page",
        response_content_type="application/octet-stream",
        error_codes=("not_found",),
        is_public=True,
        scope="talk",
    )


def _policy(request: aioweb.Request) -> str:
    """Returns the content security policy. Home Assistant shows the page in a frame of its own
    page. Its ingress alone adds this header: a page that frames ours cannot."""
    policy = SECURITY_HEADERS["Content-Security-Policy"]
    if INGRESS_PATH in request.headers:
        return policy.replace("frame-ancestors 'none'", "frame-ancestors 'self'")
    return policy


def _file_response(request: aioweb.Request, file: PageFile) -> aioweb.Response:
    # no-cache: always revalidated, so that the page never mixes modules of two versions
    headers = {**SECURITY_HEADERS, "Content-Security-Policy": _policy(request)}
    headers |= {"ETag": file.etag, "Cache-Control": "no-cache"}
    client_etags = {tag.strip().removeprefix("W/") for tag in _if_none_match(request).split(",")}
    if file.etag in client_etags or "*" in client_etags:
        return aioweb.Response(status=304, headers=headers)
    charset = None if file.content_type == "image/png" else "utf-8"
    return aioweb.Response(
        body=file.body, content_type=file.content_type, charset=charset, headers=headers
    )


def _if_none_match(request: aioweb.Request) -> str:
    return request.headers.get("If-None-Match", "")
