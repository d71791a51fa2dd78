"""GPT-Live's door: its HTTP handlers and its calls."""

from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any

import msgspec
from aiohttp import web as aioweb
from msgspec.json import encode

from core.errors import Forbidden, RequestError
from core.http.client_connection import while_connected
from core.ports import Clock, Metrics, WorkGuard
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import SessionSettings
from signaling.bearer_token import TOKEN
from signaling.live.configuration import LiveConfiguration, configured
from signaling.live.connection import LiveConnection
from signaling.live.schema import LiveCallAnswer, LiveCallRequest, WebrtcTransport
from signaling.live.websocket import LiveSockets, LiveWebSocket
from signaling.realtime.client_secrets import ClientSecret, ClientSecretStore
from signaling.realtime.door import RealtimeSettings
from signaling.realtime.protocol.validation import validate
from signaling.realtime.session.offer import configuration_of, requested_conversation
from signaling.realtime.session.settings import SessionConfiguration
from signaling.realtime.transports.sideband import serve_sideband
from signaling.realtime.transports.sideband_queue import SidebandQueue
from signaling.realtime.transports.webrtc import CallLine, RealtimeCalls


class LiveDoor:
    """GPT-Live's door. `run` must be active while calls are accepted; cancelling it ends them."""

    def __init__(
        self,
        sessions: Sessions,
        metrics: Metrics,
        guard: WorkGuard,
        clock: Clock,
        *,
        settings: RealtimeSettings | None = None,
        secrets: ClientSecretStore | None = None,
    ) -> None:
        """Creates the door. `settings`: those of the Realtime door, which hold here too. `secrets`:
        None for a server that makes no client secrets."""
        self.secrets = secrets
        self._settings = settings or RealtimeSettings()
        self._sessions, self._metrics, self._clock = sessions, metrics, clock
        self.calls = RealtimeCalls[LiveConnection](
            sessions, metrics, guard, peer=self._settings.peer, door="live"
        )
        self.sockets = LiveSockets()

    async def run(self) -> None:
        await self.calls.run()

    async def websocket(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Serves a WebSocket with a session of its own."""
        client = LiveWebSocket(
            self._sessions,
            self._metrics,
            self._clock,
            self.sockets,
            idle_timeout_s=self._settings.idle_timeout_s,
        )
        return await client.serve(request, await self._base(request))

    async def call(self, request: aioweb.Request) -> aioweb.Response:
        """Answers an SDP offer and starts the call, which outlives the request."""
        sent = _read(await request.read())
        base = await self._base(request)
        if sent.session.audio is not None and sent.session.audio.format is not None:
            raise RequestError(
                "WebRTC negotiates the format of its audio: leave 'session.audio.format' out.",
                code="unsupported_parameter",
                param="session.audio.format",
            )
        configuration = configured(base, sent.session)
        # A caller that hangs up before the answer never learns the id to end the call, so the call
        # ends with the request.
        starting = self._start(sent.transport.sdp, configuration)
        call_id, answer = await while_connected(request, starting)
        answered = LiveCallAnswer({"id": call_id}, WebrtcTransport(answer))
        return aioweb.Response(
            status=HTTPStatus.CREATED, body=encode(answered), content_type="application/json"
        )

    async def attach(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Serves a sideband connection of a session. Raises NotFound and Forbidden."""
        if self._client_secret(request) is not None:
            raise Forbidden("A client secret cannot open a session of another client.")
        session_id = request.match_info["session_id"]
        connection = self.sockets.find(session_id) or self.calls.connection(session_id)
        return await serve_sideband(request, connection, SidebandQueue())

    async def hang_up(self, request: aioweb.Request) -> aioweb.Response:
        """Ends a call; answers when everything is freed."""
        await self.calls.hang_up(request.match_info["session_id"])
        return aioweb.Response(status=HTTPStatus.OK)

    def _start(
        self, sdp: str, configuration: LiveConfiguration
    ) -> Coroutine[Any, Any, tuple[str, str]]:
        """Starts a call; returns its id, which is that of its session, and the SDP answer."""

        def connect(line: CallLine) -> LiveConnection:
            return LiveConnection(
                line.session,
                configuration,
                line.send,
                self._metrics,
                transport="webrtc",
                idle_timeout_s=self._settings.call_idle_timeout_s,
                wall_s=self._clock.wall().timestamp(),
                session_id=line.call_id,
                max_event_bytes=line.max_event_bytes,
            )

        return self.calls.start(sdp, configuration.session, connect)

    async def _base(self, request: aioweb.Request) -> SessionConfiguration:
        """Returns what a session's configuration begins with: the server's settings, or those of
        the request's client secret. Raises Unauthorized."""
        secret = self._client_secret(request)
        await self._sessions.recall(requested_conversation({}, client_secret=secret))
        return configuration_of({}, self._initial_settings, client_secret=secret)

    def _client_secret(self, request: aioweb.Request) -> ClientSecret | None:
        """Returns the request's client secret; None if it came with another key. Raises
        Unauthorized."""
        return None if self.secrets is None else self.secrets.find(request[TOKEN])

    def _initial_settings(self, conversation_id: str | None) -> SessionSettings:
        return self._sessions.remembered(self._settings.initial_settings(), conversation_id)


def _read(body: bytes) -> LiveCallRequest:
    """Parses the body of a request for a call. Raises RequestError."""
    try:
        raw = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise RequestError("The body is not valid JSON.", code="invalid_json") from None
    return validate(raw, LiveCallRequest)
