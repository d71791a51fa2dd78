"""Handlers of MCP's streamable HTTP: one path on which a client posts its messages."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import hdrs
from aiohttp import web as aioweb

from core.errors import OverloadedError
from core.http.client_connection import while_connected
from core.http.routes import JSON
from core.http.streaming import HEADERS, HEARTBEAT, HEARTBEAT_S, EventStreamSubscribers, send
from web.mcp.messages import (
    CANCELLED,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    JsonRpcError,
    MessageId,
    RpcNotification,
    RpcRequest,
    decode_message,
    encode_error,
    encode_notification,
    encode_result,
)
from web.mcp.revisions import (
    REVISION_HEADER,
    REVISIONS,
    SERVER_KEY,
    SESSION_HEADER,
    SUBSCRIPTION_KEY,
    check_revision,
    check_stateless,
    is_stateless,
    session_revision,
)
from web.mcp.sessions import McpSession, McpSessions
from web.mcp.settings import McpDoorSettings
from web.mcp.tools import OfferedTools

LOOK_S = 5.0
"Interval in which a subscriber's list of tools is compared with the last one."

MAX_SUBSCRIBERS = 32
"Most clients that wait for changes of the tools. Each holds a connection."

EVENTS = "text/event-stream"

INSTRUCTIONS = (
    "These tools act in a real house, and its people notice what they do. Names of rooms and"
    " devices are those that the schemas list."
)
"Advice for the client's model."

CAPABILITIES: Mapping[str, object] = {"tools": {"listChanged": True}}

NO_SESSION = (
    f"the header {SESSION_HEADER} is missing: begin with initialize, or send"
    f" {REVISION_HEADER}: {REVISIONS[0]}, which needs no session"
)
UNKNOWN_SESSION = "there is no such session; begin again with initialize"


class McpDoor:
    """Serves clients of every revision that `revisions` knows."""

    def __init__(
        self,
        tools: OfferedTools,
        sessions: McpSessions,
        settings: McpDoorSettings,
        *,
        heartbeat_s: float = HEARTBEAT_S,
        look_s: float = LOOK_S,
    ) -> None:
        """heartbeat_s: seconds after which a call that is not over becomes a stream of events.
        look_s: interval in which lists of tools are compared."""
        self._tools, self.sessions = tools, sessions
        self._heartbeat_s, self._look_s = heartbeat_s, look_s
        self._server = {"name": "earshot", "title": "Earshot", "version": settings.version}
        self._subscribers = EventStreamSubscribers("the tools", MAX_SUBSCRIBERS, heartbeat_s)

    async def post(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Takes one message, and answers it if it is a request."""
        try:
            _check_media_types(request)
            message = decode_message(await request.read())
            if isinstance(message, RpcRequest):
                return await self._answer(request, message)
            self._notice(request, message if isinstance(message, RpcNotification) else None)
        except JsonRpcError as error:
            return _error(error)
        return aioweb.Response(status=HTTPStatus.ACCEPTED)

    async def listen(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Sends changes of the tools to a client with a session, until it leaves."""
        try:
            _check_takes_events(request)
            self._session(request)
        except JsonRpcError as error:
            return _error(error)
        stream = aioweb.StreamResponse(headers=HEADERS)
        return await self._subscribers.show(request, stream, self._change_events(HEARTBEAT, {}))

    async def end(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Ends the session of a client that leaves."""
        try:
            self.sessions.end(self._session(request).id)
        except JsonRpcError as error:
            return _error(error)
        return aioweb.Response(status=HTTPStatus.NO_CONTENT)

    def _notice(self, request: aioweb.Request, notification: RpcNotification | None) -> None:
        """Takes a message that gets no answer. Raises JsonRpcError if it belongs to no session."""
        revision = request.headers.get(REVISION_HEADER)
        check_revision(revision)
        if is_stateless(revision):
            return  # a client without a session cancels a call by closing its connection
        session = self._session(request)
        if notification is not None and notification.method == "notifications/cancelled":
            message_id = notification.params.get("requestId")
            if isinstance(message_id, str | int):
                session.cancel(message_id)

    async def _answer(self, request: aioweb.Request, message: RpcRequest) -> aioweb.StreamResponse:
        revision = request.headers.get(REVISION_HEADER)
        if message.method == "initialize":
            return self._begin(message)
        if is_stateless(revision):
            check_stateless(message, request.headers)
            return await self._answer_stateless(request, message)
        session = self._session(request, message.id)
        try:
            return await self._answer_in_session(request, message, session)
        except JsonRpcError as error:
            # Clients of these revisions read the body only of an answer with status 200.
            return _json(encode_error(error))

    async def _answer_in_session(
        self, request: aioweb.Request, message: RpcRequest, session: McpSession
    ) -> aioweb.StreamResponse:
        match message.method:
            case "ping":
                return _json(encode_result(message.id, {}))
            case "tools/list":
                return _json(encode_result(message.id, {"tools": self._tools.listed()}))
            case "tools/call":
                return await self._call(request, message, session, {})
        raise _unknown_method(message)

    async def _answer_stateless(
        self, request: aioweb.Request, message: RpcRequest
    ) -> aioweb.StreamResponse:
        """Answers a request of the revision without sessions."""
        complete = {"resultType": "complete", "_meta": {SERVER_KEY: self._server}}
        # A client may not keep them: lamps and rooms change, and so does what a key may use.
        not_kept = {"ttlMs": 0, "cacheScope": "private"}
        match message.method:
            case "server/discover":
                found = {
                    "supportedVersions": list(REVISIONS),
                    "capabilities": CAPABILITIES,
                    "instructions": INSTRUCTIONS,
                }
                return _json(encode_result(message.id, {**complete, **not_kept, **found}))
            case "tools/list":
                result = {**complete, **not_kept, "tools": self._tools.listed()}
                return _json(encode_result(message.id, result))
            case "tools/call":
                return await self._call(request, message, None, complete)
            case "subscriptions/listen":
                return await self._subscribe(request, message)
        raise _unknown_method(message)

    def _begin(self, message: RpcRequest) -> aioweb.Response:
        revision = session_revision(message.params.get("protocolVersion"))
        try:
            session = self.sessions.begin(revision)
        except OverloadedError as error:
            status = HTTPStatus.SERVICE_UNAVAILABLE
            raise JsonRpcError(INVALID_REQUEST, str(error), message.id, status=status) from error
        result = {
            "protocolVersion": revision,
            "capabilities": CAPABILITIES,
            "serverInfo": self._server,
            "instructions": INSTRUCTIONS,
        }
        response = _json(encode_result(message.id, result))
        response.headers[SESSION_HEADER] = session.id
        return response

    async def _call(
        self,
        request: aioweb.Request,
        message: RpcRequest,
        session: McpSession | None,
        complete: Mapping[str, object],
    ) -> aioweb.StreamResponse:
        """Calls a tool. complete: fields that the result has in addition."""
        name, arguments = message.params.get("name"), message.params.get("arguments")
        if not isinstance(name, str) or not self._tools.has(name):
            raise message.invalid(f"there is no tool {str(name)[:64]!r}; tools/list names all")
        if arguments is not None and not isinstance(arguments, dict):
            raise message.invalid("arguments must be an object")
        running = session.running if session is not None else {}
        if message.id in running:
            raise JsonRpcError(INVALID_REQUEST, "a request with this id is running", message.id)

        async def result() -> bytes:
            timeout = running[message.id] = asyncio.timeout(None)
            try:
                async with timeout:
                    outcome = await self._tools.call(name, arguments or {})
            except TimeoutError:
                cancelled = JsonRpcError(CANCELLED, "the client cancelled it", message.id)
                return encode_error(cancelled)
            finally:
                del running[message.id]
            return encode_result(message.id, {**complete, **outcome})

        return await while_connected(request, self._respond(request, result()))

    async def _respond(
        self, request: aioweb.Request, result: Coroutine[Any, Any, bytes]
    ) -> aioweb.StreamResponse:
        """Answers with JSON, or with an event after heartbeats if it takes long: proxies cut silent
        connections."""
        takes_events = EVENTS in request.headers.get(hdrs.ACCEPT, "")
        stream: aioweb.StreamResponse | None = None
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(result, name="mcp-call")
            while not task.done():
                done, _ = await asyncio.wait([task], timeout=self._heartbeat_s)
                if done or not takes_events:
                    continue
                if stream is None:
                    stream = aioweb.StreamResponse(headers=HEADERS)
                    await stream.prepare(request)
                await send(stream, HEARTBEAT)
        if stream is None:
            return _json(task.result())
        await send(stream, _event(task.result()))
        await stream.write_eof()
        return stream

    async def _subscribe(
        self, request: aioweb.Request, message: RpcRequest
    ) -> aioweb.StreamResponse:
        """Sends changes of the tools to a client without a session, until it leaves."""
        wanted = message.params.get("notifications")
        if not isinstance(wanted, dict):
            raise message.invalid("notifications must be an object")
        _check_takes_events(request, message.id)
        meta = {"_meta": {SUBSCRIPTION_KEY: message.id}}
        granted = {"toolsListChanged": True} if wanted.get("toolsListChanged") is True else {}
        method = "notifications/subscriptions/acknowledged"
        first = _event(encode_notification(method, {**meta, "notifications": granted}))
        stream = aioweb.StreamResponse(headers=HEADERS)
        return await self._subscribers.show(request, stream, self._change_events(first, meta))

    async def _change_events(
        self, first: bytes, params: Mapping[str, object]
    ) -> AsyncGenerator[bytes, None]:
        """Yields the first event, then one for each change of the caller's tools."""
        yield first
        async for _ in self._tools.changes(self._looks):
            yield _event(encode_notification("notifications/tools/list_changed", params))

    async def _looks(self) -> AsyncGenerator[None, None]:
        while True:
            await asyncio.sleep(self._look_s)
            yield

    def _session(self, request: aioweb.Request, message_id: MessageId | None = None) -> McpSession:
        """Returns the session that the request belongs to. Raises JsonRpcError."""
        revision = request.headers.get(REVISION_HEADER)
        check_revision(revision)
        if is_stateless(revision):
            reason = f"{request.method} needs a session, and revision {revision} has none"
            raise JsonRpcError(INVALID_REQUEST, reason, message_id, status=405)
        session_id = request.headers.get(SESSION_HEADER)
        if session_id is None:
            raise JsonRpcError(INVALID_REQUEST, NO_SESSION, message_id)
        session = self.sessions.find(session_id)
        if session is None:
            raise JsonRpcError(INVALID_REQUEST, UNKNOWN_SESSION, message_id, status=404)
        return session


def _check_media_types(request: aioweb.Request) -> None:
    """Raises JsonRpcError for a body that is not JSON. Browsers let the forms of any foreign page
    send other types without a check (CORS)."""
    if request.content_type != JSON:
        raise JsonRpcError(INVALID_REQUEST, f"Content-Type must be {JSON}", status=415)
    accepted = request.headers.get(hdrs.ACCEPT, "*/*")
    if not any(name in accepted for name in (JSON, "application/*", "*/*")):
        raise JsonRpcError(INVALID_REQUEST, f"Accept must list {JSON} and {EVENTS}", status=406)


def _check_takes_events(request: aioweb.Request, message_id: MessageId | None = None) -> None:
    if EVENTS not in request.headers.get(hdrs.ACCEPT, ""):
        reason = f"Accept must list {EVENTS}"
        raise JsonRpcError(INVALID_REQUEST, reason, message_id, status=406)


def _unknown_method(message: RpcRequest) -> JsonRpcError:
    return JsonRpcError(
        METHOD_NOT_FOUND, f"there is no method {message.method!r} here", message.id, status=404
    )


def _error(error: JsonRpcError) -> aioweb.Response:
    response = _json(encode_error(error), status=error.status)
    if error.status == HTTPStatus.METHOD_NOT_ALLOWED:
        response.headers[hdrs.ALLOW] = hdrs.METH_POST
    return response


def _event(message: bytes) -> bytes:
    return b"event: message\ndata: %b\n\n" % message


def _json(body: bytes, status: int = HTTPStatus.OK) -> aioweb.Response:
    return aioweb.Response(
        status=status, body=body, content_type=JSON, headers={"Cache-Control": "no-store"}
    )
