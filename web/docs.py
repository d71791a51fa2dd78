"""Documentation of the HTTP API: `/openapi.json`, and `/docs` by the package swagger-ui-py."""

import asyncio
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec
from aiohttp import web as aioweb

from core.errors import ConfigError, NotFound
from core.http.routes import JSON, Route, RouteHandler
from web.openapi import document

TITLE = "Earshot"
DESCRIPTION = (
    "A self-hosted, real-time streaming voice assistant. The Realtime door speaks the OpenAI"
    " Realtime API; docs/realtime.md describes the events of a session."
)

ASSETS: Mapping[str, str] = {
    "swagger-ui.css": "text/css",
    "swagger-ui-bundle.js": "text/javascript",
    "favicon-32x32.png": "image/png",
}
"Files of the package that are served, with their content types."

INDEX_HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Earshot API</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" type="image/png" href="docs/favicon-32x32.png">
</head>
<body>
<div id="api"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""

START_SCRIPT = """const key = new URLSearchParams(location.hash.slice(1)).get("key");
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#api",
  requestInterceptor: (request) => {
    if (key && !request.headers.Authorization) {
      request.headers.Authorization = `Bearer ${key}`;
    }
    return request;
  },
});
"""

# Swagger UI sets style attributes and has its icons as data URLs.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline';"
    " img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)

DocsFile = tuple[bytes, str]
"Body and content type of a file."


def docs_routes(routes: Sequence[Route], *, version: str) -> tuple[Route, ...]:
    """Returns the routes of the documentation, which describes `routes` and itself.

    Reads the package's files: call it once, at the start. The description is made when it is asked
    for, because it takes a tenth of a second and most servers are never asked.
    """
    files = _read_files()

    @cache
    def description() -> bytes:
        api_document = document(
            (*routes, *own_routes), title=TITLE, version=version, description=DESCRIPTION
        )
        return msgspec.json.encode(api_document)

    async def openapi(_: aioweb.Request) -> aioweb.Response:
        return aioweb.Response(body=await asyncio.to_thread(description), content_type=JSON)

    async def index(_: aioweb.Request) -> aioweb.Response:
        return _file_response((INDEX_HTML.encode(), "text/html"))

    async def asset(request: aioweb.Request) -> aioweb.Response:
        name = request.match_info["name"]
        if name not in files:
            raise NotFound(f"the API page has no file {name[:80]!r}")
        return _file_response(files[name])

    own_routes = _own_routes(openapi, index, asset)
    return own_routes


def _own_routes(
    openapi: RouteHandler, index: RouteHandler, asset: RouteHandler
) -> tuple[Route, ...]:
    return (
        Route(
            "GET",
            "/openapi.json",
            openapi,
            "Describe this API as an OpenAPI 3.1 document.",
            "server",
            scope="talk",
        ),
        # Public like the page: the files hold no data. The document itself needs the key.
        Route(
            "GET",
            "/docs",
            index,
            "Show this API as a page. With `#key=` in the address the page can also call it.",
            "server",
            response_content_type="text/html",
            is_public=True,
            scope="talk",
        ),
        Route(
            "GET",
            "/docs/{name}",
            asset,
            "Download a file of the page `/docs`.",
            "server",
            response_content_type="application/octet-stream",
            error_codes=("not_found",),
            is_public=True,
            scope="talk",
        ),
    )


@cache
def _read_files() -> Mapping[str, DocsFile]:
    """Returns the files of the API page by name. Raises ConfigError without swagger-ui-py."""
    # The package is located and not imported: its code would load a template engine.
    spec = find_spec("swagger_ui")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("the package swagger-ui-py is not installed; install Earshot again")
    folder = Path(spec.submodule_search_locations[0]) / "static"
    package_files = {
        name: ((folder / name).read_bytes(), content_type) for name, content_type in ASSETS.items()
    }
    return {**package_files, "start.js": (START_SCRIPT.encode(), "text/javascript")}


def _file_response(file: DocsFile) -> aioweb.Response:
    body, content_type = file
    return aioweb.Response(
        body=body,
        content_type=content_type,
        charset="utf-8" if content_type.startswith("text/") else None,
        headers={
            "Content-Security-Policy": POLICY,
            "Cache-Control": "no-cache",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        },
    )
