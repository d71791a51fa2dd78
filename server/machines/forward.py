"""HTTP between the servers of several machines: passes requests on to the server that they belong
to, and gives new calls to servers that are less busy."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from types import TracebackType
from typing import Any, Self

import aiohttp
import msgspec
from aiohttp import hdrs
from aiohttp import web as aioweb
from aiohttp.typedefs import Handler, Middleware
from yarl import URL

from core.errors import EarshotError, Forbidden, OverloadedError, StorageError
from devices.fleet.wake_claims import WakeClaim
from devices.registry.machines import MachineRow
from server.gateways.relay import is_websocket, open_client, passed_headers, relay
from server.http.access import ACCESS, REDIRECTED, caller_of
from server.http.edge import PASSED_ON
from server.machines.seal import HEADER, TICKET, MachineEnvelope, SealedRequest, SharedKey
from server.machines.table import FULL, MachineTable

CLAIMS_PATH = "/machines/wake-claims"
"Path on the port between servers: a claim as JSON, answered with true or false."

WHIP_PATH = "/whip"

DEVICE_PATH = "/v1/devices/"
"Paths of one device: what is said to it, and what is known of it."

OFFER_PATHS = (WHIP_PATH, "/v1/realtime/calls", "/v1/live/sessions")
"""Paths to which clients post an offer. The media of the call goes by UDP to the server that
answers it, so another one may answer."""

SOCKET_PATHS = ("/v1/realtime", "/v1/live/sessions")
"Paths of WebSockets that open a session. Their sound would pass through here."


@dataclass(frozen=True, slots=True)
class OwnMachine:
    """Facts about this server that the forwarder needs."""

    fingerprint: str
    load: Callable[[], float]
    "Returns the share of its capacity that is used now."
    drains: Callable[[], bool]
    devices: Callable[[], frozenset[str]]
    "Returns the ids of the devices that are connected to it."


class MachineForwarder:
    """Passes requests on to servers of other machines. An asynchronous context: it closes its
    connections."""

    def __init__(self, table: MachineTable, key: SharedKey, own: OwnMachine) -> None:
        self._table, self._key, self._own = table, key, own
        self._clients: dict[str, aiohttp.ClientSession] = {}
        "Client by the fingerprint of the server that it connects to."

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for client in self._clients.values():
            await client.close()

    def passing_on(self) -> Middleware:
        """Returns the middleware that passes on what belongs to another server by its ids, and
        accepts tickets of redirected clients. It stands before the access rules, which the other
        server applies."""

        @aioweb.middleware
        async def pass_on(request: aioweb.Request, handler: Handler) -> aioweb.StreamResponse:
            if TICKET in request.query and request.method == hdrs.METH_POST:
                request[REDIRECTED] = self._accept_ticket(request)
                return await handler(request)
            row = self._destination(request)
            if row is None:
                return await handler(request)
            try:
                return await self._relay(row, request)
            except (aiohttp.ClientConnectionError, TimeoutError) as error:
                raise OverloadedError(
                    "the machine that answers this cannot be reached now; try again",
                    retry_after_s=2,
                    code="machine_away",
                ) from error

        return pass_on

    def spreading(self) -> Middleware:
        """Returns the middleware that gives new calls to a less busy server. It stands behind the
        access rules: a ticket opens the other server."""

        @aioweb.middleware
        async def spread(request: aioweb.Request, handler: Handler) -> aioweb.StreamResponse:
            row = self._lighter(request)
            if row is None:
                return await handler(request)
            self._table.count_given(row)
            if request.path == WHIP_PATH and self._is_owner(request):
                return self._redirect(row, request)
            try:
                return await self._relay(row, request)
            except (aiohttp.ClientConnectorError, aiohttp.ServerTimeoutError):
                # There was no connection, so the body is still to be read.
                self._table.note_away(row, monotonic())
                request[PASSED_ON] = False
                return await handler(request)

        return spread

    def restoring_factory(
        self, factory: Callable[..., aioweb.BaseRequest]
    ) -> Callable[..., aioweb.BaseRequest]:
        """Wraps the request factory of the port between servers: a request of another server looks
        as if its client had connected here. `only_machines` refuses the others."""

        def make(message: Any, payload: Any, *arguments: Any) -> aioweb.BaseRequest:
            request = factory(message, payload, *arguments)
            asked = SealedRequest(message.method, message.path, self._own.fingerprint)
            try:
                envelope = self._key.open(message.headers.get(HEADER, ""), asked, self._now_s())
            except EarshotError as error:
                request[REFUSAL] = error
                return request
            request = request.clone(scheme=envelope.scheme, remote=envelope.remote)
            request[SENDER] = envelope.sender
            return request

        return make

    async def claim(self, owner: MachineRow, claim: WakeClaim) -> bool:
        """Asks the owner of a room whether a device may answer. Raises aiohttp.ClientError, OSError
        or StorageError."""
        envelope = MachineEnvelope(self._table.own_number, "https", "")
        asked = SealedRequest("POST", CLAIMS_PATH, owner.fingerprint)
        async with self._client(owner).post(
            self._url(owner, CLAIMS_PATH),
            data=msgspec.json.encode(claim),
            headers={HEADER: self._key.seal(envelope, asked, self._now_s())},
            raise_for_status=True,
        ) as answer:
            return msgspec.json.decode(await answer.read(), type=bool)

    def _destination(self, request: aioweb.Request) -> MachineRow | None:
        """Returns the server to which a request belongs; None: this one."""
        path, query = request.path, request.query
        if path.startswith(DEVICE_PATH):
            device_id = path.removeprefix(DEVICE_PATH).partition("/")[0]
            is_here = device_id in self._own.devices()
            return None if is_here else self._table.with_device(device_id)
        token = caller_of(request).token or ""
        asked = query.get("call_id", ""), query.get("conversation_id", ""), token
        return self._table.named((*path.split("/"), *asked))

    def _lighter(self, request: aioweb.Request) -> MachineRow | None:
        """Returns the server that answers a request which opens a session; None: this one."""
        if request.get(REDIRECTED) or "conversation_id" in request.query:
            return None
        is_offer = request.method == "POST" and request.path in OFFER_PATHS
        is_socket = request.path in SOCKET_PATHS and is_websocket(request)
        load, drains = self._own.load(), self._own.drains()
        if not is_offer and not (is_socket and "call_id" not in request.query):
            return None
        if is_socket and load < FULL:
            return None
        return self._table.lighter(load, monotonic(), drains=drains)

    def _is_owner(self, request: aioweb.Request) -> bool:
        access = request[ACCESS]
        return access.is_trusted and access.named_key is None and access.token is None

    def _redirect(self, row: MachineRow, request: aioweb.Request) -> aioweb.Response:
        """Redirects a WHIP client (RFC 9725, 4.5). Clients leave their key out when the host
        changes, so the URL has a ticket: for this request alone, once, and for half a minute."""
        target = request.rel_url.raw_path_qs
        envelope = MachineEnvelope(self._table.own_number, request.scheme, request.remote or "")
        asked = SealedRequest(request.method, target, row.fingerprint)
        sealed = self._key.seal(envelope, asked, self._now_s())
        ticket = urlsafe_b64encode(sealed.encode()).decode().rstrip("=")
        mark = "&" if "?" in target else "?"
        return aioweb.Response(
            status=307,
            headers={
                hdrs.LOCATION: f"{row.url}{target}{mark}{TICKET}={ticket}",
                hdrs.CACHE_CONTROL: "no-store",
            },
        )

    def _accept_ticket(self, request: aioweb.Request) -> bool:
        """Checks the ticket of a redirected client. Raises Forbidden machine_not_authenticated."""
        target, _, ticket = request.rel_url.raw_path_qs.rpartition(f"{TICKET}=")
        try:
            sealed = urlsafe_b64decode(ticket + "=" * (-len(ticket) % 4)).decode("ascii")
        except ValueError:
            raise Forbidden(
                f"{TICKET} is not the ticket of a redirect", code="machine_not_authenticated"
            ) from None
        asked = SealedRequest(request.method, target[:-1], self._own.fingerprint)
        self._key.open(sealed, asked, self._now_s())
        return True

    async def _relay(self, row: MachineRow, request: aioweb.Request) -> aioweb.StreamResponse:
        target = request.rel_url.raw_path_qs
        envelope = MachineEnvelope(self._table.own_number, request.scheme, request.remote or "")
        asked = SealedRequest(request.method, target, row.fingerprint)
        headers = passed_headers(request)
        headers[HEADER] = self._key.seal(envelope, asked, self._now_s())
        return await relay(self._client(row), self._url(row, target), headers, request)

    def _client(self, row: MachineRow) -> aiohttp.ClientSession:
        """Returns the client of a server. Those of ended servers hold no connection."""
        if row.fingerprint not in self._clients:
            certificate = aiohttp.Fingerprint(bytes.fromhex(row.fingerprint))
            connector = aiohttp.TCPConnector(ssl=certificate, limit=0)
            self._clients[row.fingerprint] = open_client(connector)
        return self._clients[row.fingerprint]

    def _url(self, row: MachineRow, target: str) -> URL:
        return URL(f"https://{row.peer_address}{target}", encoded=True)

    def _now_s(self) -> float:
        now_s = self._table.shared_time_s(monotonic())
        if now_s is None:  # then no other server is known
            raise StorageError("this server has not reached the database yet")
        return now_s


REFUSAL = aioweb.RequestKey("refusal", EarshotError)
"Why a request on the port between servers is refused. Not set: another server has sent it."

SENDER = aioweb.RequestKey("sender", int)
"Number of the server that has sent a request on the port between servers."


@aioweb.middleware
async def only_machines(request: aioweb.Request, handler: Handler) -> aioweb.StreamResponse:
    """Refuses a request on the port between servers that none of them has sent."""
    if SENDER not in request:
        raise request[REFUSAL]
    return await handler(request)
