"""What the Realtime door is made of and what it answers over HTTP."""

from dataclasses import dataclass, field
from http import HTTPStatus

from aiohttp import web as aioweb

from core.ports import Metrics
from media.peer import PeerSettings
from pipeline.settings import SessionSettings
from signaling.realtime.calls import Calls
from signaling.realtime.offer import read_offer, read_sdp, terms_of
from signaling.realtime.ports import Guard, HomeSource, Sessions
from signaling.realtime.ws import serve


@dataclass(frozen=True, slots=True)
class RealtimeSettings:
    idle_timeout_s: float = 600
    "WebSocket: without any event or audio from the client, and nothing happening, for so long."
    call_idle_timeout_s: float = 3600
    "WebRTC: its audio never stops, so without an event or speech for so long."
    peer: PeerSettings = field(default_factory=PeerSettings)
    fresh: SessionSettings = field(default_factory=SessionSettings)
    "Of a session whose client has said nothing yet."


class RealtimeDoor:
    """`run` must be running while calls are taken; cancelling it ends them."""

    def __init__(
        self,
        sessions: Sessions,
        metrics: Metrics,
        guard: Guard,
        *,
        home: HomeSource | None = None,
        settings: RealtimeSettings | None = None,
    ) -> None:
        self._settings = settings = settings or RealtimeSettings()
        self._sessions, self._metrics, self._home = sessions, metrics, home
        self.calls = Calls(
            sessions,
            metrics,
            guard,
            home=home,
            peer=settings.peer,
            idle_timeout_s=settings.call_idle_timeout_s,
        )

    async def run(self) -> None:
        await self.calls.run()

    async def websocket(self, request: aioweb.Request) -> aioweb.StreamResponse:
        return await serve(
            request,
            self._sessions,
            self._metrics,
            home=self._home,
            idle_timeout_s=self._settings.idle_timeout_s,
            fresh=self._settings.fresh,
        )

    async def call(self, request: aioweb.Request) -> aioweb.Response:
        """An offer in, the answer out; the call outlives the request."""
        offer = await read_offer(request, self._settings.fresh)
        call_id, answer = await self.calls.start(offer.sdp, offer.terms)
        return _answered(call_id, answer)

    async def legacy_call(self, request: aioweb.Request) -> aioweb.Response:
        """The same for clients of the beta: always raw SDP."""
        sdp = await read_sdp(request)
        call_id, answer = await self.calls.start(sdp, terms_of(request.query, self._settings.fresh))
        return _answered(call_id, answer)

    async def offer_again(self, request: aioweb.Request) -> aioweb.Response:
        """No call takes a second offer; the error says whether there is such a call."""
        self.calls.refuse_offer(request.match_info["call_id"])
        return aioweb.Response()

    async def hang_up(self, request: aioweb.Request) -> aioweb.Response:
        await self.calls.hang_up(request.match_info["call_id"])
        return aioweb.Response(status=HTTPStatus.OK)


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
