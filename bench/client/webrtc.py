"""Realtime client over WebRTC: audio on the media track, events on the data channel."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus

import msgspec
from aiohttp import ClientError, ClientSession, FormData
from msgspec.json import encode

from bench.client.connection_stats import ConnectionReport, combined_report
from bench.client.http import Address, connect_errors, http_session, refusal
from bench.client.microphone import RATE_HZ, Microphone
from bench.client.realtime import (
    CONNECT_TIMEOUT_S,
    CannotConnect,
    ClientTransport,
    EventInbox,
    Json,
    OnSound,
    ReceivedEvent,
    SessionRequest,
    background,
    decode_event,
    include_earshot_events,
    wait_for_session,
)
from core.audio import AudioFrame
from core.errors import RequestError
from media.webrtc.peer import CloseReason, Peer, PeerCallbacks, PeerSettings

CREATED = 201
"HTTP status of a call that was accepted."

SILENCE_S = 0.5
"""Time without any packet after which the server is asked whether it still has the call, in
seconds. It sends 50 packets a second, even in silence."""

ASK_INTERVAL_S = 1.0
"Interval of further questions while no packet comes, in seconds: the network may be at fault."

CHECK_S = 0.1
"Interval at which a client looks for silence, in seconds."

GONE_CODES = frozenset({"call_not_found", "gateway_restarting"})
"Error codes of a server whose process with the call has ended."

_END_REASONS: Mapping[CloseReason, str] = {
    CloseReason.CLOSED: "closed",
    CloseReason.REMOTE_CLOSED: "the server closed it",
    CloseReason.CONNECT_TIMEOUT: f"no media within {CONNECT_TIMEOUT_S} s; is UDP blocked?",
    CloseReason.CONNECT_FAILED: "no network path for media was found; is UDP blocked?",
    CloseReason.CONNECTION_LOST: "the server stopped sending",
    CloseReason.LAGGING: "the server did not read the client's events",
}


class WebRtcClient:
    """A `RealtimeClient` over WebRTC."""

    transport: ClientTransport = "webrtc"

    def __init__(self, on_sound: OnSound) -> None:
        clock = asyncio.get_running_loop().time
        self.microphone = Microphone(clock)
        self.inbox = EventInbox(clock)
        self._clock, self._on_sound = clock, on_sound
        self._heard_at = clock()
        "Time of the last packet."
        self.peer = Peer(
            PeerCallbacks(
                pull=self.microphone.pull,
                on_frame=self._on_frame,
                on_message=self._on_message,
            ),
            PeerSettings(
                playout_rate_hz=RATE_HZ,
                listen_rate_hz=RATE_HZ,
                connect_timeout_s=CONNECT_TIMEOUT_S,
            ),
        )

    @property
    def end_reason(self) -> str:
        return self.inbox.end_reason

    @property
    def conversation_id(self) -> str:
        return self.inbox.conversation_id

    async def quality(self) -> ConnectionReport:
        return combined_report(await self.peer.meter().measure(), self.inbox.quality)

    def send(self, event: Json) -> None:
        self.peer.send(encode(event).decode())

    def events(self) -> AsyncGenerator[ReceivedEvent, None]:
        return self.inbox.events()

    async def run(self) -> None:
        """Runs until the connection is over."""
        self.inbox.close(_END_REASONS[await self.peer.run()])

    async def watch(self, http: ClientSession, address: Address, location: str) -> None:
        """Ends the connection if no packet comes and the server does not know the call any more:
        its process has ended. ICE would need many seconds to find that out. `location`: path of
        the call."""
        while location:
            await asyncio.sleep(CHECK_S)
            if self._clock() - self._heard_at < SILENCE_S:
                continue
            if await _is_gone(http, address, location):
                self.peer.stop(CloseReason.CONNECTION_LOST)
                return
            await asyncio.sleep(ASK_INTERVAL_S)

    def _on_frame(self, frame: AudioFrame) -> None:
        self._heard_at = self._clock()
        self._on_sound(frame, self._heard_at)

    def _on_message(self, text: str | bytes) -> None:
        if (event := decode_event(text)) is not None:
            self.inbox.put(event)


@asynccontextmanager
async def connect_webrtc(
    address: Address, request: SessionRequest, on_sound: OnSound
) -> AsyncGenerator[WebRtcClient, None]:
    """Opens a call with this session while the body runs. Raises CannotConnect."""
    client = WebRtcClient(on_sound)
    try:
        async with http_session(address) as http:
            answer, location = await _call(http, address, request, await client.peer.offer())
            try:
                await client.peer.accept(answer)
            except RequestError as error:
                raise CannotConnect(f"the server's SDP answer cannot be used: {error}") from error
            async with background(client.run()):
                await wait_for_session(client.inbox)
                await include_earshot_events(client.send, client.inbox)
                async with background(client.watch(http, address, location)):
                    yield client
    finally:
        await client.peer.close()


async def _call(
    http: ClientSession, address: Address, request: SessionRequest, offer: str
) -> tuple[str, str]:
    """Starts a call. Returns the SDP answer and the path of the call; that is empty if the server
    does not tell it."""
    form = FormData()
    form.add_field("sdp", offer, content_type="application/sdp")
    session = {**request.session(), "model": request.model}
    form.add_field("session", encode(session).decode(), content_type="application/json")
    url = address.realtime("/calls", **request.query())
    with connect_errors(address):
        async with http.post(url, data=form, ssl=address.ssl()) as response:
            if response.status != CREATED:
                raise await refusal(response)
            return await response.text(), response.headers.get("Location", "")


async def _is_gone(http: ClientSession, address: Address, location: str) -> bool:
    """Asks whether the server has a call, with an offer that it refuses in any case."""
    try:
        async with http.post(
            f"{address.url}{location}",
            data=b"v=0",
            headers={"Content-Type": "application/sdp"},
            ssl=address.ssl(),
        ) as response:
            if response.status == HTTPStatus.CONFLICT:
                return False
            answer = msgspec.json.decode(await response.read())
    except (ClientError, TimeoutError, msgspec.DecodeError, UnicodeDecodeError):
        return False
    error = answer.get("error") if isinstance(answer, dict) else None
    return isinstance(error, dict) and error.get("code") in GONE_CODES
