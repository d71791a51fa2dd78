"""Tracks the responses that are being played. When the sound of one ends, its turn is finished.

The end is taken from the side that paces the playout. In server-paced sessions that is ours: the
moment of the last packet. In client-paced sessions it is the first packet plus the length of the
sound, or the position that the client reports with `truncate`. A client that paces itself stops
playing by itself when it gets the event "speech started". It may report its last sample a moment
later.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil, floor

from core.conversation.events import (
    ItemTruncated,
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    SessionEvent,
)
from core.errors import RequestError
from core.ports import Clock
from core.tasks import Alarm
from pipeline.conversation.history import History
from pipeline.playout.playout import ClientPlayoutClock, PlayoutWriter
from pipeline.response.response import Response
from pipeline.shared.outbox import SessionOutbox
from pipeline.shared.settings import PlayoutPacing
from pipeline.shared.turn import TurnMark

TRUNCATE_S = 0.5
"""Seconds from the event "speech started" to the client's `truncate`: a round trip on a poor
line."""


@dataclass(slots=True)
class _PlayingResponse:
    """A response that has begun to sound."""

    response: Response
    writer: PlayoutWriter
    due_at: float | None = None
    """Time at which its turn is finished unless the client reports first, in monotonic seconds.
    None: more sound may come."""
    stopped_at: float | None = None
    "Time at which the client stopped playing it before its end, in monotonic seconds."


class PlaybackTracker:
    """Tracks which responses of one session are audible, and finishes their turns.

    It receives the reports of the playout (`playout_started` and others).
    """

    def __init__(
        self,
        paced_by: PlayoutPacing,
        clock: Clock,
        client: ClientPlayoutClock,
        outbox: SessionOutbox,
        find: Callable[[str], Response | None],
        on_cut: Callable[[], None],
    ) -> None:
        """Takes the parts of the session.

        client: the estimated position of a client that paces itself. find: returns a response by
        its id. on_cut: called when the rest of a response will not be played.
        """
        self._paced_by: PlayoutPacing = paced_by
        self._clock, self._client = clock, client
        self._find, self._on_cut = find, on_cut
        self._emit, self._finish_turn = outbox.emit, outbox.finish_turn
        self._playing: dict[str, _PlayingResponse] = {}
        "By response."
        self._alarm = Alarm(clock.now)

    # Implementation of `PlayoutObserver`.

    def playout_started(self, writer: PlayoutWriter) -> None:
        """Notes the first sound of a response: its turn is answered."""
        self._emit(PlayoutStarted(writer.response_id))
        response = self._find(writer.response_id)
        if response is None or response.turn.is_reported:
            return
        response.turn.mark(TurnMark.PLAYOUT_START, self._clock.now())
        response.turn.is_sounding = True
        self._finish_turn(response.turn, "answered")
        self._playing[writer.response_id] = _PlayingResponse(response, writer)

    def playout_stopped(self, writer: PlayoutWriter) -> None:
        """Notes that a response was played to its end."""
        self._emit(PlayoutStopped(writer.response_id))
        self._sound_ended(writer)

    def playout_cleared(self, writer: PlayoutWriter) -> None:
        """Notes that a response was stopped before its end."""
        self._on_cut()
        self._emit(PlayoutCleared(writer.response_id))
        self._sound_ended(writer)

    # Reports of a client that paces its own playout.

    def client_stopped(self) -> None:
        """Notes that the client stopped playing, because it got the event "speech started"."""
        if self._paced_by == "server":
            return
        self._client.drop_unplayed()
        now = self._clock.now()
        for playing in self._playing.values():
            if playing.stopped_at is None:
                playing.stopped_at, playing.due_at = now, now + TRUNCATE_S
        self._set_alarm()

    def client_truncated(self, item_id: str, audio_end_ms: float) -> None:
        """Notes how much of an item's sound the client has played, in ms."""
        if self._paced_by == "server":
            return
        self._client.drop_unplayed()
        for playing in tuple(self._playing.values()):
            if playing.response.item_id == item_id:
                self._finish(
                    playing, min(playing.writer.played_at(audio_end_ms), self._clock.now())
                )

    # Lifetime.

    async def run(self) -> None:
        """Finishes turns when the client will have played their sound."""
        while True:
            await self._alarm.wait()
            now = self._clock.now()
            for playing in tuple(self._playing.values()):
                if playing.due_at is not None and playing.due_at <= now:
                    self._finish(playing, playing.writer.ends_at)
            self._set_alarm()

    def close(self) -> None:
        """Finishes the turns of all responses that are audible: the session is over."""
        for playing in tuple(self._playing.values()):
            self._finish(playing, min(playing.writer.ends_at, self._clock.now()))

    def _set_alarm(self) -> None:
        due = (playing.due_at for playing in self._playing.values() if playing.due_at is not None)
        self._alarm.set(min(due, default=None))

    def _sound_ended(self, writer: PlayoutWriter) -> None:
        """Notes that no more sound of this response will come."""
        if (playing := self._playing.get(writer.response_id)) is None:
            return
        if self._paced_by == "server":
            self._finish(playing, writer.ends_at)
        elif playing.due_at is None:
            playing.due_at = writer.ends_at
            self._set_alarm()

    def _finish(self, playing: _PlayingResponse, ended_at: float) -> None:
        del self._playing[playing.writer.response_id]
        turn = playing.response.turn
        stopped_at = ended_at if playing.stopped_at is None else min(playing.stopped_at, ended_at)
        turn.mark(TurnMark.PLAYOUT_END, stopped_at)
        turn.cut = playing.response.cut
        turn.is_sounding = False
        self._finish_turn(turn, "answered")


# Truncation: an answer is cut to what was heard. Either the client reports how much it played, or
# the server stops playing.


def truncate(response: Response | None, history: History, item_id: str, audio_end_ms: int) -> None:
    """Cuts `response` to its first `audio_end_ms`. `response` made the item; None: it is not known.

    Raises RequestError item_not_found, or invalid_value beyond the end of the sound.
    """
    if response is None or (response.in_conversation and history.find(item_id) is None):
        raise RequestError(
            f"item {item_id!r} is not a recent spoken answer",
            code="item_not_found",
            param="item_id",
        )
    total_ms = response.total_ms
    if not 0 <= audio_end_ms <= ceil(total_ms):
        raise RequestError(
            f"audio_end_ms {audio_end_ms} is not within 0 to {ceil(total_ms)} ms of audio",
            code="invalid_value",
            param="audio_end_ms",
        )
    # A client that played all reports whole ms, rounded up or down. The sound ends between them.
    response.truncate(total_ms if audio_end_ms >= floor(total_ms) else audio_end_ms)


def truncate_at_playout(
    response: Response,
    history: History,
    writer: PlayoutWriter,
    paced_by: PlayoutPacing,
    emit: Callable[[SessionEvent], None],
) -> None:
    """Cuts a finished response to what was heard when its playout stopped.

    A client that paces itself reports the position. Other clients get an ItemTruncated event,
    unless they deleted the item.
    """
    if paced_by == "server":
        response.truncate(writer.heard_ms)
        if response.item_id is not None and history.find(response.item_id) is not None:
            emit(ItemTruncated(response.item_id, round(writer.heard_ms)))
