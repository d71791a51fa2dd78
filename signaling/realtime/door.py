"""Realtime door: its HTTP handlers, its calls and its settings."""

from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from http import HTTPStatus
from typing import Any

from aiohttp import web as aioweb
from msgspec.json import encode

from core.conversation.ids import new_id
from core.errors import Forbidden
from core.http.client_connection import while_connected
from core.ports import Metrics, WorkGuard
from media.webrtc.peer import PeerSettings
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import InitialSettings, SessionSettings
from pipeline.tools.home import Home
from signaling.bearer_token import TOKEN
from signaling.realtime.client_secrets import (
    ClientSecret,
    ClientSecretRequest,
    ClientSecretResponse,
    ClientSecretStore,
)
from signaling.realtime.connection import RealtimeConnection
from signaling.realtime.protocol.beta import is_beta, secret_request_to_ga, session_to_beta
from signaling.realtime.session.offer import (
    configuration_of,
    read_offer,
    read_sdp,
    read_secret_request,
    requested_conversation,
)
from signaling.realtime.session.settings import SessionConfiguration, session_json
from signaling.realtime.transports.sideband import serve_sideband
from signaling.realtime.transports.sideband_outbox import SidebandOutbox
from signaling.realtime.transports.webrtc import CallLine, RealtimeCalls
from signaling.realtime.transports.websocket import serve


@dataclass(frozen=True, slots=True)
class RealtimeSettings:
    """Settings of the Realtime door."""

    idle_timeout_s: float = 600
    """WebSocket: time in seconds without any event or audio, in either direction, after which it
    ends."""
    call_idle_timeout_s: float = 3600
    """WebRTC: time in seconds without an event or speech. Silent audio does not count, as it never
    stops."""
    peer: PeerSettings = field(default_factory=PeerSettings)
    initial_settings: InitialSettings = SessionSettings
    "Settings of a session before its client sends any."


class RealtimeDoor:
    """Realtime door with its HTTP handlers. `run` must be active while calls are accepted;
    cancelling it ends them."""

    def __init__(
        self,
        sessions: Sessions,
        metrics: Metrics,
        guard: WorkGuard,
        *,
        home: Home | None = None,
        settings: RealtimeSettings | None = None,
        secrets: ClientSecretStore | None = None,
    ) -> None:
        """Creates the door. `secrets`: None for a server that makes no client secrets."""
        self.secrets = secrets
        self._settings = settings = settings or RealtimeSettings()
        self._sessions, self._metrics, self._home = sessions, metrics, home
        self.calls = RealtimeCalls[RealtimeConnection](sessions, metrics, guard, peer=settings.peer)

    async def run(self) -> None:
        await self.calls.run()

    async def websocket(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Serves a WebSocket: a session of its own, or with `call_id` a sideband connection of a
        call."""
        client_secret = self._client_secret(request)
        if (call_id := request.query.get("call_id")) is not None:
            if client_secret is not None:
                raise Forbidden("A client secret cannot open a call of another client.")
            outbox = SidebandOutbox(is_beta=is_beta(request.headers))
            return await serve_sideband(request, self.calls.connection(call_id), outbox)
        named = requested_conversation(request.query, client_secret=client_secret)
        await self._sessions.recall(named)
        return await serve(
            request,
            self._sessions,
            self._metrics,
            home=self._home,
            idle_timeout_s=self._settings.idle_timeout_s,
            initial_settings=self._initial_settings,
            client_secret=client_secret,
        )

    async def client_secret(self, request: aioweb.Request) -> aioweb.Response:
        """Makes a client secret for sessions with these settings."""
        secret_request = read_secret_request(await request.read())
        return _json(self._mint(secret_request))

    async def beta_session(self, request: aioweb.Request) -> aioweb.Response:
        """Makes a client secret for clients of the beta API, whose session object is flat."""
        return await self._mint_flat(request, is_transcription=False)

    async def beta_transcription_session(self, request: aioweb.Request) -> aioweb.Response:
        """Makes a client secret for a beta client's transcription session."""
        return await self._mint_flat(request, is_transcription=True)

    async def call(self, request: aioweb.Request) -> aioweb.Response:
        """Answers an SDP offer and starts the call, which outlives the request."""
        offer = await read_offer(
            request, self._initial_settings, self._sessions.recall, self._client_secret(request)
        )
        configuration = replace(offer.configuration, is_beta=is_beta(request.headers))
        # A caller that hangs up before the answer never learns the id to end the call, so the call
        # ends with the request.
        starting = self._start(offer.sdp, configuration)
        call_id, answer = await while_connected(request, starting)
        return _answered(call_id, answer)

    async def legacy_call(self, request: aioweb.Request) -> aioweb.Response:
        """Answers the SDP offer of a client of the beta API, which is always raw SDP."""
        sdp, client_secret = await read_sdp(request), self._client_secret(request)
        await self._sessions.recall(
            requested_conversation(request.query, client_secret=client_secret)
        )
        configuration = configuration_of(
            request.query, self._initial_settings, client_secret=client_secret
        )
        starting = self._start(sdp, replace(configuration, is_beta=True))
        call_id, answer = await while_connected(request, starting)
        return _answered(call_id, answer)

    async def offer_again(self, request: aioweb.Request) -> aioweb.Response:
        """Refuses a second offer for a call; the error says whether the call exists."""
        self.calls.refuse_offer(request.match_info["call_id"])
        return aioweb.Response()

    async def hang_up(self, request: aioweb.Request) -> aioweb.Response:
        """Ends a call; answers when everything is freed."""
        await self.calls.hang_up(request.match_info["call_id"])
        return aioweb.Response(status=HTTPStatus.OK)

    def _start(
        self, sdp: str, configuration: SessionConfiguration
    ) -> Coroutine[Any, Any, tuple[str, str]]:
        """Starts a call with events of the Realtime API; returns its id and the SDP answer."""

        def connect(line: CallLine) -> RealtimeConnection:
            return RealtimeConnection(
                line.session,
                configuration,
                line.send,
                self._metrics,
                transport="webrtc",
                idle_timeout_s=self._settings.call_idle_timeout_s,
                home=self._home,
                max_event_bytes=line.max_event_bytes,
            )

        return self.calls.start(sdp, configuration, connect)

    async def _mint_flat(
        self, request: aioweb.Request, *, is_transcription: bool
    ) -> aioweb.Response:
        to_ga = partial(secret_request_to_ga, is_transcription=is_transcription)
        client_secret = self._mint(read_secret_request(await request.read(), to_ga))
        secret = {"value": client_secret.value, "expires_at": client_secret.expires_at}
        return _json({**session_to_beta(client_secret.session), "client_secret": secret})

    def _mint(self, secret_request: ClientSecretRequest) -> ClientSecretResponse:
        assert self.secrets is not None
        configuration = configuration_of({}, self._initial_settings, secret_request.session)
        value, expires_at = self.secrets.mint(secret_request)
        return ClientSecretResponse(value, expires_at, session_json(configuration, new_id("sess")))

    def _client_secret(self, request: aioweb.Request) -> ClientSecret | None:
        """Returns the request's client secret; None if it came with the server's key. Raises
        Unauthorized."""
        return None if self.secrets is None else self.secrets.find(request[TOKEN])

    def _initial_settings(self, conversation_id: str | None) -> SessionSettings:
        return self._sessions.remembered(self._settings.initial_settings(), conversation_id)


def _json(answer: object) -> aioweb.Response:
    return aioweb.Response(body=encode(answer), content_type="application/json")


def _answered(call_id: str, answer: str) -> aioweb.Response:
    return aioweb.Response(
        status=HTTPStatus.CREATED,
        text=answer,
        content_type="application/sdp",
        headers={
            "Location": f"/v1/realtime/calls/{call_id}",
            "Access-Control-Expose-Headers": "Location",
        },
    )
