"""Calls over WebRTC. Each runs in its own task, from the offer until its peer is closed."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

from core.access.named_key import CALLER_KEY, reaches
from core.audio import AudioFrame
from core.conversation.ids import new_id
from core.errors import Conflict, EarshotError, NotFound, OverloadedError, RequestError
from core.ports import Metrics, WorkGuard
from core.queues import Outbox
from media.webrtc.peer import CloseReason, Peer, PeerCallbacks, PeerSettings
from pipeline.playout.playout import PACED_RATE_HZ
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from signaling.call_stats import quality_reports
from signaling.realtime.event_connection import GONE, DisconnectReason, EventConnection
from signaling.realtime.protocol.validation import params_below
from signaling.realtime.session.settings import SessionConfiguration

logger = logging.getLogger(__name__)

MAX_UNREAD_EVENTS = 256
"""Limit of unread events. A client sends a handful per turn, and each takes well under a
millisecond."""

CHANNEL_TIMEOUT_S = 15
"""Time limit in seconds from connecting to an open event channel. Without it the client gets no
events."""

LINGER_S = 0.5
"Time in seconds from the last event to closing the peer: aiortc does not flush a data channel."

RETRY_AFTER_S = 5
"`Retry-After` for a refused caller, in seconds."


ConnectionT = TypeVar("ConnectionT", bound=EventConnection[Any, Any, Any])


@dataclass(frozen=True, slots=True)
class CallLine:
    """Parts of a new call that its connection needs."""

    call_id: str
    session: Session
    send: Callable[[str], Awaitable[None]]
    max_event_bytes: int | None
    "Largest text that the client's data channel takes; None: no limit."


Connect: TypeAlias = Callable[[CallLine], ConnectionT]
"Makes the connection of a call. May raise RequestError."


_ENDS: Mapping[CloseReason, DisconnectReason] = {
    CloseReason.CLOSED: DisconnectReason.HUNG_UP,
    CloseReason.REMOTE_CLOSED: DisconnectReason.CLIENT,
}
"End of the peer -> end of the connection. In every other case the peer was lost."


class RealtimeCalls(Generic[ConnectionT]):
    """All calls of one door. `run` owns their tasks; cancelling it ends them all."""

    def __init__(
        self,
        sessions: Sessions,
        metrics: Metrics,
        guard: WorkGuard,
        *,
        peer: PeerSettings,
        door: str = "realtime",
    ) -> None:
        """`door`: name of the door in the log."""
        self._door = door
        self._sessions, self._metrics, self._guard = sessions, metrics, guard
        self._peer_settings = peer
        self._calls: dict[str, RealtimeCall[ConnectionT]] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def count(self) -> int:
        """Number of live calls."""
        return len(self._calls)

    async def run(self) -> None:
        """Accepts calls until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                await asyncio.Event().wait()
        finally:
            self._tasks = None

    async def start(
        self,
        offer_sdp: str,
        configuration: SessionConfiguration,
        connect: Connect[ConnectionT],
    ) -> tuple[str, str]:
        """Starts a call; returns its id and the SDP answer. The session is opened before the
        answer, so that a full server and wrong settings are errors of this request. Raises
        OverloadedError or RequestError."""
        if self._tasks is None:
            raise OverloadedError(
                "no calls are accepted now, because the server is shutting down",
                retry_after_s=RETRY_AFTER_S,
                code="draining",
            )
        call = RealtimeCall(self._sessions, self._metrics, connect, self._peer_settings, self._door)
        work = self._guard(self._run(call, offer_sdp, configuration), call.id)
        self._tasks.create_task(work, name=call.id)
        return call.id, await call.answered

    async def hang_up(self, call_id: str) -> None:
        """Ends a call; returns when everything is freed. Raises NotFound."""
        call = self._find(call_id)
        call.hang_up()
        await call.ended.wait()

    def connection(self, call_id: str) -> ConnectionT:
        """Returns the connection of a call that was answered. Raises NotFound."""
        call = self._find(call_id)
        if call.connection is None:
            raise NotFound("This call has not been answered.", code="call_not_found")
        return call.connection

    def refuse_offer(self, call_id: str) -> None:
        """Raises Conflict for a live call, else NotFound."""
        self._find(call_id)
        raise Conflict(
            "This call is already answered: a new offer is a new call.",
            code="call_already_answered",
        )

    def _find(self, call_id: str) -> "RealtimeCall[ConnectionT]":
        call = self._calls.get(call_id)
        if call is None or not reaches(call.opener):
            raise NotFound("There is no such call, or it has ended.", code="call_not_found")
        return call

    async def _run(
        self,
        call: "RealtimeCall[ConnectionT]",
        offer_sdp: str,
        configuration: SessionConfiguration,
    ) -> None:
        self._calls[call.id] = call
        try:
            await call.run(offer_sdp, configuration)
        finally:
            del self._calls[call.id]
            call.ended.set()


class RealtimeCall(Generic[ConnectionT]):
    """One call. It must be created in a running event loop."""

    def __init__(
        self,
        sessions: Sessions,
        metrics: Metrics,
        connect: Connect[ConnectionT],
        peer_settings: PeerSettings,
        door: str,
    ) -> None:
        self._door = door
        self.id = new_id("rtc")
        self.answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        "SDP answer, or the error instead of it. The caller ends the call by cancelling this."
        self.ended = asyncio.Event()
        self.opener = CALLER_KEY.get()
        "Named key of the caller."
        self._sessions, self._metrics, self._connect = sessions, metrics, connect
        self._peer_settings = peer_settings
        self.connection: ConnectionT | None = None
        self._peer: Peer | None = None
        self._opened = asyncio.Event()
        self._unread: Outbox[str | bytes] = Outbox(MAX_UNREAD_EVENTS)

    def hang_up(self) -> None:
        """Asks the call to end, without waiting."""
        if self._peer is not None:
            self._peer.stop()

    async def run(self, offer_sdp: str, configuration: SessionConfiguration) -> None:
        """Serves the call until the peer is gone or the session has ended; everything is freed
        then."""
        refusal: EarshotError | None = None
        try:
            opened = self._sessions.open(
                configuration.settings,
                paced_by="server",
                conversation_id=configuration.conversation_id,
                door=self._door,
                secret_holder=configuration.secret_holder,
            )
            async with AsyncExitStack() as stack:
                with params_below("session"):
                    session = await stack.enter_async_context(opened)
                refusal = await self._answer(session, offer_sdp)
        except EarshotError as error:
            if self.answered.done():
                raise
            refusal = error
        finally:
            if not self.answered.done():
                unknown = EarshotError("the call could not be set up")
                self.answered.set_exception(refusal or unknown)

    async def _answer(self, session: Session, offer_sdp: str) -> EarshotError | None:
        """Serves the whole call; returns an error if the offer cannot be answered."""
        peer = self._peer = Peer(
            PeerCallbacks(
                pull=self._pull,
                next_sound_event=lambda: session.next_sound_event,
                on_frame=self._feed,
                on_message=self._unread.put,
                on_open=self._opened.set,
            ),
            replace(self._peer_settings, playout_rate_hz=PACED_RATE_HZ),
        )
        try:
            answer = await peer.answer(offer_sdp)
        except EarshotError as error:
            return error
        if self.answered.done():  # the caller has left before the answer
            await peer.close()
            return None
        try:
            line = CallLine(self.id, session, self._send, peer.max_text_bytes)
            connection = self._connect(line)
        except RequestError as error:
            await peer.close()
            return error
        self.connection = connection
        self.answered.set_result(answer)
        await self._run_peer(peer, connection)
        return None

    async def _run_peer(self, peer: Peer, connection: ConnectionT) -> None:
        """Runs the peer until it ends, with the events and the quality reports at the same time."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._serve_events(peer, connection, tasks), name=f"{self.id}-events")
            meter = tasks.create_task(self._measure(peer, connection), name=f"{self.id}-quality")
            reason = await peer.run()
            logger.info("= call %s ended: %s", self.id, reason)
            if reason not in (CloseReason.CLOSED, CloseReason.REMOTE_CLOSED):
                self._metrics.count("earshot_errors", code=reason.value)
            connection.close(_ENDS.get(reason, DisconnectReason.LOST))
            self._opened.set()
            self._unread.close()
            meter.cancel()

    async def _measure(self, peer: Peer, connection: ConnectionT) -> None:
        async with aclosing(quality_reports(peer.meter(), self._metrics)) as qualities:
            async for quality in qualities:
                await connection.send_quality(quality)

    async def _serve_events(
        self, peer: Peer, connection: ConnectionT, tasks: asyncio.TaskGroup
    ) -> None:
        """Handles events from the open channel to the end of the session, which ends the call."""
        try:
            async with asyncio.timeout(peer.settings.connect_timeout_s + CHANNEL_TIMEOUT_S):
                await self._opened.wait()
        except TimeoutError:
            logger.info("= call %s opened no event channel", self.id)
            peer.stop(CloseReason.CONNECT_TIMEOUT)
            return
        tasks.create_task(self._read(peer, connection), name=f"{self.id}-read")
        end = await connection.run()
        if end not in GONE:
            logger.info("= call %s: %s", self.id, end.value)
            await asyncio.sleep(LINGER_S)
        peer.stop()

    async def _read(self, peer: Peer, connection: ConnectionT) -> None:
        """Gives the client's events to the connection. Ends the call if they come too fast."""
        async for message in self._unread:
            if isinstance(message, str):
                await connection.receive(message)
            else:
                await connection.refuse_binary()
        if self._unread.overflowed:
            logger.warning("! call %s sent events faster than the server can read them", self.id)
            await connection.send_flood_error(MAX_UNREAD_EVENTS)
            await asyncio.sleep(LINGER_S)
            peer.stop(CloseReason.LAGGING)

    def _pull(self) -> AudioFrame | None:
        return None if self.connection is None else self.connection.pull()

    def _feed(self, frame: AudioFrame) -> None:
        if self.connection is not None:
            self.connection.feed(frame)

    async def _send(self, text: str) -> None:
        """Queues a text without blocking. The peer itself ends if its client is too slow."""
        if self._peer is not None:
            self._peer.send(text)
