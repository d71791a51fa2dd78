"""How a door names its HTTP routes: enough to mount them and to write `/openapi.json` from types.

Each door exports `routes(door) -> tuple[Route, ...]`; the server mounts `handler` as it is.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

HttpMethod = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]

JSON = "application/json"

FORWARDED = frozenset(
    (
        "cdn-loop",
        "client-ip",
        "forwarded",
        "forwarded-for",
        "front-end-https",
        "proxy-authorization",
        "proxy-client-ip",
        "proxy-connection",
        "true-client-ip",
        "via",
        "wl-proxy-client-ip",
        "x-amzn-trace-id",
        "x-client-ip",
        "x-cloud-trace-context",
        "x-cluster-client-ip",
        "x-original-uri",
        "x-originating-ip",
        "x-proxyuser-ip",
        "x-real-ip",
        "x-remote-addr",
        "x-remote-ip",
        "x-varnish",
        "x-vercel-id",
    )
)
"Headers, in lower case, that proxies add, and no program does that asks for itself."

FORWARDED_PREFIXES = (
    "cf-",  # Cloudflare: CF-Connecting-IP, CF-Ray, ...
    "cloudfront-",
    "fastly-",
    "fly-",
    "ngrok-",
    "remote-",  # Remote-User and the like: of proxies that ask for a password
    "tailscale-",
    "x-amz-cf-",
    "x-amzn-mtls-",
    "x-amzn-oidc-",
    "x-appengine-",
    "x-arr-",  # IIS
    "x-auth-request-",  # oauth2-proxy
    "x-authentik-",
    "x-azure-",
    "x-envoy-",
    "x-forwarded",
    "x-goog-authenticated-user-",
    "x-goog-iap-",
    "x-ms-client-principal",
    "x-ms-forwarded-",
    "x-nf-",  # Netlify
    "x-original-",
    "x-pomerium-",
    "x-vercel-forwarded-",
    "x-vercel-ip-",
)
"Beginnings of such headers."


def is_forwarded(headers: Iterable[str], version: tuple[int, int]) -> bool:
    """Whether a proxy sent a request with these header names, so that who asks is somebody else.

    nginx as it comes adds no header at all, but speaks HTTP/1.0 to what is behind it; clients of
    ours speak 1.1. A forwarder of bytes shows in nothing: for it there is `server.require_key`.
    """
    names = [name.lower() for name in headers]
    return version < (1, 1) or any(
        name in FORWARDED or name.startswith(FORWARDED_PREFIXES) for name in names
    )


BROKEN_FORM = (ValueError, RuntimeError, AssertionError)
"""What aiohttp's reader of multipart forms raises for a wrong form, beside errors of its own: bytes
that are no text, an unknown encoding, a boundary that is longer than the piece it reads."""

RouteHandler = Callable[[Any], Awaitable[Any]]
"Takes the web library's request and gives its response; core knows no web library."


@dataclass(frozen=True, slots=True)
class Route:
    """One operation of a door."""

    method: HttpMethod
    path: str
    "With `{name}` for path parameters, as OpenAPI writes them."
    handler: RouteHandler
    summary: str
    "One sentence for the API's page."
    tag: str
    "Under which heading the API's page lists it: the door's name."
    request: type | None = None
    "Type of a JSON body, or of a multipart form's parts; None: no body, or not JSON."
    request_content_types: tuple[str, ...] = ()
    "Accepted content types; () with a `request` means JSON."
    responses: Mapping[int, type | None] = field(default_factory=lambda: {200: None})
    "Success status -> type of its JSON body; None: no body, or `response_content_type` says."
    response_content_type: str = JSON
    response_headers: Mapping[str, str] = field(default_factory=dict)
    "Header -> what it tells."
    query: Mapping[str, str] = field(default_factory=dict)
    "Query parameter -> what it does; all are optional."
    error_codes: tuple[str, ...] = ()
    "Stable codes this operation may answer with, beside those of every operation."
    is_public: bool = False
    "True: answered without a key."
    admits: Callable[[str], bool] | None = None
    "Whether this bearer token opens it, beside the server's key; None: none does."
    admits_peer: Callable[[str | None], bool] | None = None
    """Whether a program at this address needs no key, for devices that know none; never a page in a
    browser, nor what comes through a proxy. None: no address is enough."""
    admits_page: Callable[[str, str | None], bool] | None = None
    """Whether pages of this origin, in a browser at this address, need no key; never what comes
    through a proxy. None: no origin is enough."""
    max_body_bytes: int | None = None
    """Largest body; None: the server's own limit. A handler that reads one above the server's limit
    reads it in pieces, and counts those that come without a Content-Length."""
