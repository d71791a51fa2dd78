"""Publications: audio that a client sends by WHIP. Each runs in its own task, from the offer until
its peer is closed."""

import asyncio
import logging
import secrets
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from core.access.named_key import CALLER_KEY, reaches
from core.conversation.ids import new_id
from core.errors import (
    Conflict,
    EarshotError,
    NotFound,
    OverloadedError,
    PayloadTooLarge,
    RequestError,
)
from core.ports import Metrics, WorkGuard
from media.webrtc.ice.candidates import MAX_CANDIDATES
from media.webrtc.peer import CloseReason, Peer, PeerCallbacks, PeerSettings
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import InitialSettings, SessionSettings
from signaling.call_stats import record_quality
from signaling.whip.offer import with_whip_code
from signaling.whip.sdp_fragment import (
    SdpFragment,
    mid_of,
    ufrag_of,
    write_fragment,
)
from signaling.whip.transcript_feed import TranscriptFeed, event_of

if TYPE_CHECKING:
    from media.webrtc.ice.restart import IceRestart

logger = logging.getLogger(__name__)

ANY_LABEL = ""
"Label that accepts any data channel: publishers choose its name themselves."

RETRY_AFTER_S = 5
"`Retry-After` for a refused client, in seconds."

IDLE = "idle"
"Reason for the end if there was no speech for too long. All other reasons come from the peer."

_NORMAL = (CloseReason.CLOSED, CloseReason.REMOTE_CLOSED)


@dataclass(frozen=True, slots=True)
class WhipSettings:
    """Settings of the WHIP door."""

    peer: PeerSettings = field(default_factory=PeerSettings)
    initial_settings: InitialSettings = SessionSettings
    "Settings of a session whose client sent none."
    idle_timeout_s: float = 3600
    """Time in seconds without speech after which a publication ends. Silent audio does not count,
    as it never stops."""

    def receive_only(self) -> PeerSettings:
        """Returns settings for a peer that only receives."""
        return replace(self.peer, plays=False, channel_label=ANY_LABEL)


class Publications:
    """All publications of the server. `run` owns their tasks; cancelling it ends them."""

    def __init__(
        self,
        sessions: Sessions,
        metrics: Metrics,
        guard: WorkGuard,
        settings: WhipSettings,
    ) -> None:
        self.sessions, self.metrics, self.settings = sessions, metrics, settings
        self._guard = guard
        self._publications: dict[str, Publication] = {}
        self._tasks: asyncio.TaskGroup | None = None

    @property
    def count(self) -> int:
        """Number of live publications."""
        return len(self._publications)

    async def run(self) -> None:
        """Accepts publications until it is cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                self._tasks = tasks
                await asyncio.Event().wait()
        finally:
            self._tasks = None

    async def start(self, offer: str, settings: SessionSettings) -> tuple["Publication", str]:
        """Starts a publication; returns it with the SDP answer. The session is opened first, so
        that a full server is an error of this request. Raises OverloadedError or RequestError."""
        if self._tasks is None:
            raise OverloadedError(
                "no publications are accepted now, because the server is shutting down",
                retry_after_s=RETRY_AFTER_S,
                code="draining",
            )
        publication = Publication(self, settings, offer)
        self._tasks.create_task(
            self._guard(self._run(publication, offer), publication.id), name=publication.id
        )
        return publication, await publication.answered

    def find(self, publication_id: str) -> "Publication":
        """Returns a live publication. Raises NotFound."""
        found = self._publications.get(publication_id)
        if found is None or not reaches(found.opener):
            raise no_such_publication()
        return found

    async def _run(self, publication: "Publication", offer: str) -> None:
        self._publications[publication.id] = publication
        try:
            await publication.run(offer)
        finally:
            del self._publications[publication.id]
            publication.ended.set()


class Publication:
    """One publication. It must be created in a running event loop."""

    def __init__(self, owner: Publications, settings: SessionSettings, offer: str) -> None:
        self.id = new_id("whip")
        self.etag = _new_etag()
        "Identifies the current ICE session."
        self.answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """SDP answer, or the error instead of it. The caller ends the publication by cancelling
        this."""
        self.ended = asyncio.Event()
        self.opener = CALLER_KEY.get()
        "Named key of the publisher."
        self.feed = TranscriptFeed()
        self._owner, self._settings = owner, settings
        self._ufrag, self._mid = ufrag_of(offer), mid_of(offer)
        self._candidates = 0
        self._has_channel = False
        self._active_at = asyncio.get_running_loop().time()
        self._reason = ""
        self._peer: Peer | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._restart: IceRestart | None = None
        "ICE restart that is in progress."
        self._restart_task: asyncio.Task[None] | None = None

    async def end(self) -> None:
        """Ends the publication; returns when everything is freed."""
        if self._peer is not None:
            self._peer.stop()
        await self.ended.wait()

    async def trickle(self, fragment: SdpFragment) -> None:
        """Adds candidates to the ICE session. Raises RequestError for a fragment that would restart
        ICE, or PayloadTooLarge."""
        if fragment.ufrag not in (None, self._ufrag):
            raise RequestError(
                "This ice-ufrag is not the one of the ETag; an ICE restart needs If-Match: *",
                code="unknown_ice_session",
            )
        self._candidates += len(fragment.candidates)
        if self._candidates > MAX_CANDIDATES:
            raise PayloadTooLarge(
                f"more than {MAX_CANDIDATES} candidates", code="too_many_candidates"
            )
        if self._restart is not None:
            await self._restart.add_candidates(fragment.candidates)
        elif self._peer is not None:
            await self._peer.add_candidates(fragment.candidates)

    async def restart(self, fragment: SdpFragment) -> str:
        """Begins an ICE restart; returns our side as a fragment. `etag` names the new ICE session
        then. Raises RequestError, Conflict ice_not_connected, OverloadedError, or NotFound if the
        publication ends meanwhile."""
        if fragment.password is None or fragment.ufrag in (None, self._ufrag):
            raise RequestError(
                "A restart needs a new ice-ufrag and its ice-pwd.", code="invalid_sdp_fragment"
            )
        if self._peer is None:
            raise Conflict("there is no connection yet to restart", code="ice_not_connected")
        restart = self._peer.restart_ice()
        ours = await restart.begin(fragment.ufrag, fragment.password, fragment.candidates)
        if self._tasks is None:  # the publication ended meanwhile
            await restart.close()
            raise no_such_publication()
        if self._restart_task is not None:
            self._restart_task.cancel()
        self._restart, self._ufrag = restart, fragment.ufrag
        self.etag, self._candidates = _new_etag(), len(fragment.candidates)
        self._restart_task = self._tasks.create_task(
            self._run_restart(restart), name=f"{self.id}-ice"
        )
        return write_fragment(self._mid, ours.ufrag, ours.password, ours.candidates)

    async def run(self, offer: str) -> None:
        """Serves the publication until the peer is gone or the session has ended; everything is
        freed then."""
        refusal: EarshotError | None = None
        try:
            opened = self._owner.sessions.open(self._settings, paced_by="server", door="whip")
            async with AsyncExitStack() as stack:
                refusal = await self._publish(await stack.enter_async_context(opened), offer)
        except EarshotError as error:
            if self.answered.done():
                raise
            refusal = error
        finally:
            if not self.answered.done():
                unknown = EarshotError("the publication could not be set up")
                self.answered.set_exception(refusal or unknown)
            self.feed.close(self._reason)

    async def _publish(self, session: Session, offer: str) -> EarshotError | None:
        """Serves the whole publication; returns an error if the offer cannot be answered."""
        peer = self._peer = Peer(
            PeerCallbacks(
                pull=session.pull,
                on_frame=session.feed,
                on_message=lambda _: None,
                on_open=self._send_kept_entries,
            ),
            self._owner.settings.receive_only(),
        )
        try:
            answer = await peer.answer(offer)
        except RequestError as error:
            return with_whip_code(error)
        except EarshotError as error:
            return error
        if self.answered.done():  # nobody waits for it any more
            await peer.close()
            return None
        self.answered.set_result(answer)
        async with asyncio.TaskGroup() as tasks:
            self._tasks = tasks
            tasks.create_task(self._send_events(session, peer), name=f"{self.id}-events")
            idle = tasks.create_task(self._end_when_idle(peer), name=f"{self.id}-idle")
            quality_task = tasks.create_task(
                record_quality(peer.meter(), self._owner.metrics), name=f"{self.id}-quality"
            )
            self._note_end(await peer.run())
            self._tasks = None
            session.close()
            for task in (idle, quality_task, self._restart_task):
                if task is not None:
                    task.cancel()
        return None

    async def _run_restart(self, restart: "IceRestart") -> None:
        try:
            await restart.run()
        finally:
            if self._restart is restart:
                self._restart = None

    async def _send_events(self, session: Session, peer: Peer) -> None:
        """Sends events to all readers until the session ends, which ends the publication."""
        async for session_event in session.events:
            event = event_of(session_event)
            if event is not None:
                self._active_at = asyncio.get_running_loop().time()
                entry = self.feed.put(event)
                if self._has_channel:
                    peer.send(entry.text)
        peer.stop()

    def _send_kept_entries(self) -> None:
        """Sends the kept events when the data channel has opened."""
        self._has_channel = True
        if self._peer is not None:
            for entry in self.feed.kept_entries:
                self._peer.send(entry.text)

    def _note_end(self, reason: CloseReason) -> None:
        self._reason = self._reason or reason.value
        logger.info("= publication %s ended: %s", self.id, self._reason)
        if reason not in _NORMAL:
            self._owner.metrics.count("earshot_errors", code=reason.value)

    async def _end_when_idle(self, peer: Peer) -> None:
        loop, timeout_s = asyncio.get_running_loop(), self._owner.settings.idle_timeout_s
        while True:
            left_s = self._active_at + timeout_s - loop.time()
            if left_s <= 0:
                break
            await asyncio.sleep(left_s)
        self._reason = IDLE
        peer.stop()


def no_such_publication() -> NotFound:
    """Returns the error for an unknown publication."""
    return NotFound("There is no such publication, or it has ended.", code="publication_not_found")


def _new_etag() -> str:
    return f'"{secrets.token_urlsafe(9)}"'
