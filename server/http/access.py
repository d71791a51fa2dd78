"""Applies the rules of `auth.py` to every route, and adds the CORS headers with which pages of
other sites may use the server, if they send the key."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

from aiohttp import hdrs
from aiohttp import web as aioweb
from aiohttp.typedefs import Handler, Middleware

from core.access.named_key import CALLER_KEY, KeyScope, NamedKey
from core.errors import Forbidden, Unauthorized
from core.http.routes import is_forwarded
from devices.registry.tokens import PREFIX as DEVICE_KEY
from server.http.auth import AccessGate, AccessGrant, AccessRequest, password_of, token_of
from server.http.key_attempts import KeyAttemptLimiter
from signaling.bearer_token import TOKEN

ACCESS = aioweb.RequestKey("access", AccessGrant)
"Result of the gate for a request."

REDIRECTED = aioweb.RequestKey("redirected", bool)
"""Set to True on a request of a client that another machine has let in and sent here. It has no
key: clients leave it out when the host changes."""

API_KEY = "X-API-Key"
"Header in which clients of WIS and several others send the key, instead of `Authorization`."

PREFLIGHT_HEADERS: Mapping[str, str] = {
    "Access-Control-Allow-Methods": "GET, POST, PUT, PATCH, DELETE, OPTIONS",
    "Access-Control-Allow-Headers": (
        "Authorization, X-API-Key, Content-Type, If-Match, Last-Event-ID, X-Request-ID, "
        "MCP-Protocol-Version, Mcp-Session-Id, Mcp-Method, Mcp-Name, "
        "OpenAI-Beta, OpenAI-Organization, OpenAI-Project, X-OpenAI-Agents-SDK, "
        "X-Audio-Codec, X-Audio-Sample-Rate, X-Audio-Bits, X-Audio-Channel, "  # Willow's uploads
        "Device-Id, Client-Id, Activation-Version, Serial-Number"  # xiaozhi's check-in
    ),
    "Access-Control-Max-Age": "600",
}
"Headers of the answer to a CORS preflight."

FOREIGN_SITES = ("cross-site", "same-site")
"""Values of Sec-Fetch-Site for foreign pages. Pages of another port of this host are `same-site`,
and count as foreign."""

EXPOSED_HEADERS = (
    "Accept-Patch, Accept-Post, ETag, Link, Location, Mcp-Session-Id, Retry-After, X-Request-ID, "
    "X-Earshot-Model, X-Earshot-Padding"
)
"Headers of an answer that a script of another site may read, in addition to the body."


def guard(gate: AccessGate) -> Middleware:
    """Returns the middleware that lets a request in or answers 401 or 403. It runs before routing
    shows whether the path exists."""
    limiter, running = KeyAttemptLimiter(), KeyRequests()
    if gate.keys is not None:
        gate.keys.on_revoked.append(running.end)

    @aioweb.middleware
    async def check_access(request: aioweb.Request, handler: Handler) -> aioweb.StreamResponse:
        caller = caller_of(request)
        if _is_preflight(gate, caller, request):
            request[TOKEN] = None
            return await _preflight(gate, request, handler)
        admits = getattr(request.match_info.handler, ADMITS, None)
        is_trusted_address = request.get(REDIRECTED, False) or _is_trusted_address(request, caller)
        is_public = _is_public(request)
        try:
            access = gate.admit(
                caller,
                is_public=is_public,
                scope=_scope_of_path(request),
                admits=admits,
                is_trusted_address=is_trusted_address,
            )
        except Unauthorized:
            if caller.token is not None:
                await limiter.slow_down(request.remote)
            raise
        has_wrong_token = access.token is not None and not access.is_trusted
        # A public path shows less without the key. Devices send their own keys there, each of 256
        # random bits, and the door checks those: they are no guesses at the server's key.
        if has_wrong_token and not (access.token or "").startswith(DEVICE_KEY):
            with suppress(Unauthorized):
                await limiter.slow_down(request.remote)
        request[ACCESS] = access
        request[TOKEN] = access.token
        named_key = access.named_key
        reset = CALLER_KEY.set(named_key)
        try:
            if named_key is None or gate.keys is None:
                return await handler(request)
            access.check_scope()
            gate.keys.count_request(named_key)
            async with running.added(named_key):
                return await handler(request)
        finally:
            CALLER_KEY.reset(reset)

    return check_access


class KeyRequests:
    """Running requests with named keys, streams and WebSockets included. Those of a key end when
    it is revoked."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Timeout, str] = {}
        "Timeout of a request, which expires when its key is revoked -> id of the key."

    @asynccontextmanager
    async def added(self, key: NamedKey) -> AsyncIterator[None]:
        """Runs one request. Raises Unauthorized key_revoked."""
        timeout = asyncio.timeout(None)
        try:
            async with timeout:
                self._running[timeout] = key.id
                try:
                    yield
                finally:
                    del self._running[timeout]
        except TimeoutError:
            if not timeout.expired():
                raise
            raise Unauthorized(f"the key {key.name!r} was revoked", code="key_revoked") from None

    def end(self, key: NamedKey) -> None:
        """Ends the requests of a key, without waiting."""
        now = asyncio.get_running_loop().time()
        for timeout, key_id in self._running.items():
            if key_id == key.id:
                timeout.reschedule(now)


PUBLIC = "earshot_public"
"Attribute of a handler that needs no key."

SCOPE = "earshot_scope"
"Attribute of a handler: the scope that a named key needs."

ADMITS = "earshot_admits"
"Attribute of a handler: function that accepts tokens other than the server's key, or None."

ADMITS_PEER = "earshot_admits_peer"
"Attribute of a handler: function that says which addresses need no key, or None."

ADMITS_PAGE = "earshot_admits_page"
"Attribute of a handler: function that says which sites at which addresses need no key, or None."


def _is_trusted_address(request: aioweb.Request, caller: AccessRequest) -> bool:
    """Returns True if the handler lets this address, or this site at this address, in without a
    key. A browser always sends its Origin for anything but a plain link; a device never does."""
    handler = request.match_info.handler
    if caller.is_forwarded:
        return False
    if caller.origin is not None:
        admits_page = getattr(handler, ADMITS_PAGE, None)
        return admits_page is not None and admits_page(caller.origin, request.remote) is True
    admits = getattr(handler, ADMITS_PEER, None)
    is_program = "Sec-Fetch-Site" not in request.headers
    return admits is not None and is_program and admits(request.remote) is True


def _scope_of_path(request: aioweb.Request) -> KeyScope | None:
    """Returns the scope of the path. None: there is no such path, so the answer is 404."""
    scope: KeyScope | None = getattr(request.match_info.handler, SCOPE, None)
    return scope


def _is_public(request: aioweb.Request) -> bool:
    return getattr(request.match_info.handler, PUBLIC, False) is True


def caller_of(request: aioweb.Request) -> AccessRequest:
    """Collects what the gate needs from a request. Raises Forbidden for two Host or Origin
    headers."""
    for name in (hdrs.HOST, hdrs.ORIGIN):
        if len(request.headers.getall(name, ())) > 1:
            raise Forbidden(f"more than one {name} header", code="forbidden_host")
    authorization = request.headers.get(hdrs.AUTHORIZATION)
    api_key_header = request.headers.get(API_KEY, "").strip()
    return AccessRequest(
        host=request.headers.get(hdrs.HOST),
        origin=request.headers.get(hdrs.ORIGIN),
        scheme=_scheme_of(request),
        token=token_of(
            authorization,
            ", ".join(request.headers.getall(hdrs.SEC_WEBSOCKET_PROTOCOL, ())) or None,
            api_key_header,
        ),
        # A browser remembers a password; X-API-Key comes only from a script that knows the key.
        is_basic=password_of(authorization) is not None and not api_key_header,
        is_forwarded=is_forwarded(request.headers, request.version),
        peer=request.remote,
        is_cross_site=(
            hdrs.ORIGIN not in request.headers
            and request.headers.get("Sec-Fetch-Site") in FOREIGN_SITES
        ),
    )


def _scheme_of(request: aioweb.Request) -> str:
    """Returns the scheme that the browser uses, from a proxy's header X-Forwarded-Proto. Without
    it, pages served through a TLS proxy would look foreign. A page of another site cannot send this
    header, because no preflight allows it."""
    scheme = request.headers.get("X-Forwarded-Proto", "").partition(",")[0].strip().lower()
    return scheme if scheme in ("http", "https") else request.scheme


def _is_preflight(gate: AccessGate, caller: AccessRequest, request: aioweb.Request) -> bool:
    """Returns True for a CORS preflight of an allowed site. A browser cannot send the key with
    it."""
    is_options = request.method == hdrs.METH_OPTIONS and caller.origin is not None
    if not is_options or "Access-Control-Request-Method" not in request.headers:
        return False
    return gate.allows_origin(caller.origin or "")


async def _preflight(
    gate: AccessGate, request: aioweb.Request, handler: Handler
) -> aioweb.StreamResponse:
    """Answers a preflight; a path that handles OPTIONS itself adds its headers (RFC 9725 section
    4.2)."""
    response: aioweb.StreamResponse = aioweb.Response(status=HTTPStatus.NO_CONTENT)
    if request.match_info.http_exception is None:
        response = await handler(request)
    response.headers.update(PREFLIGHT_HEADERS)
    origin = request.headers[hdrs.ORIGIN]
    response.headers["Access-Control-Allow-Origin"] = origin
    # Chrome asks this before a page of the internet may reach a private network. An allowed origin
    # must be listed by name for it; "*" is not enough.
    if "Access-Control-Request-Private-Network" in request.headers and origin in gate.origins:
        response.headers["Access-Control-Allow-Private-Network"] = "true"
    response.headers.add("Vary", "Origin")
    return response


async def allow_reading(request: aioweb.Request, response: aioweb.StreamResponse) -> None:
    """Adds the CORS headers with which a foreign site may read the answer. They are also sent when
    the key is wrong, so that the site's developer sees the reason. Registered as
    `on_response_prepare`."""
    origin = request.headers.get(hdrs.ORIGIN)
    access: AccessGrant | None = request.get(ACCESS)
    cors_origin = access.cors_origin if access else None
    if response.status == HTTPStatus.UNAUTHORIZED:
        cors_origin = origin
    if cors_origin:
        response.headers["Access-Control-Allow-Origin"] = cors_origin
        response.headers["Access-Control-Expose-Headers"] = EXPOSED_HEADERS
        response.headers.add("Vary", "Origin")
