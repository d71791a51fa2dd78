"""Queue of the responses of one session: one runs, others wait, and an interruption cancels
some."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, replace

from core.conversation.events import CancelReason
from core.errors import Conflict, EarshotError
from core.ports import Clock
from core.tasks import Alarm
from pipeline.response.response import Response
from pipeline.shared.settings import ResponseRequest, SessionSettings
from pipeline.shared.turn import Turn
from pipeline.user_turn.events import InputActivity

logger = logging.getLogger(__name__)

MAX_WAITING = 8
"""Limit of waiting announcements, of waiting responses, and of out-of-band ones. More than a person
can follow."""
MAX_SILENT_S = 10.0
"""Seconds for which an announcement waits until the user stops speaking: about one sentence. A
television that is taken for a user must not keep a timer from ringing."""
MAX_REMEMBERED = 32
"""Number of recent responses whose word timing is kept, for a client that reports later how much it
played."""


AUTOMATIC = ResponseRequest()
"""Request of a response that starts because the user's turn ended, without a request of the client.
The response answers everything that the user says until it begins."""


@dataclass(slots=True)
class QueuedResponse:
    """A response that has not been made yet."""

    turn: Turn
    request: ResponseRequest
    text: str | None
    "Text of an announcement; None: the language model writes the response."
    refusal: EarshotError | None
    "Error with which the response fails; None: it is made."
    queued_at: float
    "Time at which it was queued, in monotonic seconds."
    cancelled: CancelReason | None = None
    """Set when it was cancelled while it waited. It still runs, so that the client gets its events:
    created, then done with status "cancelled"."""
    waits_for_user: bool = False
    "True for an announcement that waits because the user spoke: the user is answered first."

    @property
    def is_announcement(self) -> bool:
        return self.text is not None

    @property
    def is_out_of_band(self) -> bool:
        """True when speech in the conversation does not make it out of date."""
        return not self.request.in_conversation

    @property
    def answers_all(self) -> bool:
        """True when it answers everything that the user says until it begins."""
        return self.request is AUTOMATIC


@dataclass(frozen=True, slots=True)
class _ActiveResponse:
    """A response that runs or ran last, with its entry in the queue."""

    entry: QueuedResponse
    response: Response


class ResponseQueue:
    """Runs responses one at a time, in order. Out-of-band text responses run at once."""

    def __init__(
        self,
        make: Callable[[QueuedResponse], Response],
        drop: Callable[[Turn], None],
        on_idle: Callable[[], None],
        settings: Callable[[], SessionSettings],
        clock: Clock,
        input_activity: InputActivity,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Takes what is called when something happens, and the parts of the session.

        make: makes a response when it begins. drop: called with the turn of a response that is not
        made after all. on_idle: called when no response runs and none may begin. tasks: the
        session's group, which runs the responses.
        """
        self._make, self._drop, self._settings = make, drop, settings
        self._on_idle, self._clock, self._input_activity = on_idle, clock, input_activity
        self._tasks = tasks
        self._waiting: deque[QueuedResponse] = deque()
        self._alarm = Alarm(clock.now)
        self._has_begun = False
        "True once `run` runs."
        self._running: _ActiveResponse | None = None
        self._last_made: _ActiveResponse | None = None
        "The response whose task ended last. Its sound may still wait for the speaker."
        self._out_of_band: list[Response] = []
        self._remembered: OrderedDict[str, Response] = OrderedDict()

    @property
    def has_response(self) -> bool:
        """True when a response is made or may begin.

        Announcements that wait for the user do not count, nor out-of-band text.
        """
        return self._running is not None or any(not entry.waits_for_user for entry in self._waiting)

    @property
    def is_empty(self) -> bool:
        """True when nothing is made and nothing waits, of whatever kind."""
        return self._running is None and not (self._waiting or self._out_of_band)

    @property
    def has_conversation_response(self) -> bool:
        """True when a response of the conversation is made or may begin: one that is not out of
        band."""
        running = self._running is not None and not self._running.entry.is_out_of_band
        return running or any(not (e.is_out_of_band or e.waits_for_user) for e in self._waiting)

    @property
    def is_full(self) -> bool:
        """True when MAX_WAITING out-of-band responses wait or run.

        None of them is dropped for a new one.
        """
        return sum(e.is_out_of_band for e in self._waiting) + len(self._out_of_band) >= MAX_WAITING

    @property
    def may_announce(self) -> bool:
        """True while fewer than MAX_WAITING announcements wait."""
        return sum(entry.is_announcement for entry in self._waiting) < MAX_WAITING

    def is_waiting(self, turn: Turn) -> bool:
        """Returns whether the response to this turn has not begun."""
        return any(entry.turn is turn for entry in self._waiting)

    async def run(self) -> None:
        """Runs the responses as they are queued, until it is cancelled."""
        self._has_begun = True
        while True:
            while (entry := self._next()) is not None:
                response = self._make(entry)
                if entry.cancelled is not None:
                    response.cancel(entry.cancelled)
                task = self._tasks.create_task(response.run(), name=response.response_id)
                self._running = _ActiveResponse(entry, response)
                await asyncio.wait([task])
                self._running, self._last_made = None, self._running
                self._remember(response)
            self._alarm.set(self._wait_until())
            self._on_idle()
            await self._alarm.wait()

    def wake(self) -> None:
        """Makes `run` look at once for a response that may begin. Call it when the user's input
        changed: announcements wait for the end of speech and for its transcript."""
        self._alarm.set(self._clock.now())

    def _next(self) -> QueuedResponse | None:
        """Removes and returns the first response that may begin.

        An announcement is not spoken while the user speaks, nor before the answer to that speech.
        """
        for entry in self._waiting:
            entry.waits_for_user = self._must_wait(entry)
            if not entry.waits_for_user:
                self._waiting.remove(entry)
                return entry
        return None

    def _must_wait(self, entry: QueuedResponse) -> bool:
        may_wait = entry.is_announcement and self._clock.now() - entry.queued_at < MAX_SILENT_S
        is_user_first = self._input_activity.is_speaking or (
            entry.waits_for_user and self._input_activity.is_transcribing
        )
        return may_wait and is_user_first

    def _wait_until(self) -> float | None:
        """Returns the monotonic seconds at which the oldest waiting announcement may begin although
        the user still speaks. None: nothing waits."""
        return self._waiting[0].queued_at + MAX_SILENT_S if self._waiting else None

    def enqueue(
        self,
        turn: Turn,
        request: ResponseRequest,
        *,
        text: str | None = None,
        refusal: EarshotError | None = None,
    ) -> None:
        """Queues a response behind the others, but before announcements that wait for the user.

        An out-of-band response in text starts at once. An automatic one replaces one that waits. If
        more than MAX_WAITING responses of the conversation would wait, the oldest is dropped.

        text: text of an announcement. refusal: error with which the response fails.
        """
        entry = QueuedResponse(turn, request, text, refusal, self._clock.now())
        is_written = (request.modality or self._settings().modality) == "text"
        # It needs no voice. Before the session has begun, the order of requests is kept.
        if entry.is_out_of_band and is_written and self._has_begun:
            response = self._make(entry)
            self._out_of_band.append(response)
            self._tasks.create_task(self._run_out_of_band(response), name=response.response_id)
            return
        # It also answers the words that a waiting automatic response would answer.
        if entry.answers_all:
            self._drop_if(lambda waiting: waiting.answers_all and waiting.cancelled is None)
        answers = [e for e in self._waiting if not (e.is_announcement or e.is_out_of_band)]
        if len(answers) >= MAX_WAITING:
            logger.warning("! %d answers are waiting; the oldest is dropped", MAX_WAITING)
            self._waiting.remove(answers[0])
            self._drop(answers[0].turn)
        entry.waits_for_user = self._must_wait(entry)
        # Position: announcements go to the end, others behind the last entry that does not wait for
        # the user.
        before = [
            at
            for at, other in enumerate(self._waiting, 1)
            if entry.is_announcement or not other.waits_for_user
        ]
        self._waiting.insert(max(before, default=0), entry)
        self.wake()

    def cancel(self, reason: CancelReason, response_id: str | None = None) -> None:
        """Cancels a response by its id. Without an id: the conversation's, which runs or is next.

        Raises Conflict when there is none.
        """
        running = self._running
        if response_id is None:
            self._cancel_in_conversation(reason)
            return
        known = (*self._out_of_band, *([] if running is None else [running.response]))
        for response in known:
            if response.response_id == response_id:
                response.cancel(reason)
                return
        message = f"response {response_id!r} is not being generated"
        raise Conflict(message, code="response_cancel_not_active")

    def _cancel_in_conversation(self, reason: CancelReason) -> None:
        running = self._running
        if running is not None and not running.entry.is_out_of_band:
            running.response.cancel(reason)
            return
        waiting = (
            e for e in self._waiting if not (e.is_out_of_band or e.waits_for_user or e.cancelled)
        )
        if (entry := next(waiting, None)) is None:
            message = "no response is being generated"
            raise Conflict(message, code="response_cancel_not_active")
        entry.cancelled = reason

    def interrupt(self) -> None:
        """Cancels the responses that the user's speech made out of date.

        Announcements that were not audible yet are kept. They are queued again, behind the answer
        to the user.
        """
        for entry in self._waiting:
            if entry.is_announcement:
                entry.waits_for_user = True
            elif not entry.is_out_of_band:
                entry.cancelled = "turn_detected"
        running, made = self._running, self._last_made
        if running is not None and not (
            running.entry.is_out_of_band or running.response.is_cancelled
        ):
            if running.entry.is_announcement and not running.response.is_heard:
                self._announce_again(running.entry)
            running.response.cancel("turn_detected")
        if made is not None and made.entry.is_announcement and made.response.awaits_speaker:
            self._announce_again(made.entry)

    def _announce_again(self, entry: QueuedResponse) -> None:
        now = self._clock.now()
        self._waiting.appendleft(replace(entry, queued_at=now, cancelled=None, waits_for_user=True))
        self.wake()

    def close(self) -> list[Response]:
        """Drops all waiting responses. Returns the recent ones (at most MAX_REMEMBERED) and those
        that run."""
        self._drop_if(lambda _: True)
        running = [] if self._running is None else [self._running.response]
        return [*self._remembered.values(), *running, *self._out_of_band]

    def find(self, item_id: str) -> Response | None:
        """Returns the response that made this item, if it runs or is recent."""
        running = [] if self._running is None else [self._running.response]
        known = (*running, *self._out_of_band, *self._remembered.values())
        return next((response for response in known if response.item_id == item_id), None)

    def answers_to(self, turn: Turn) -> list[Response]:
        """Returns the recent responses to this turn, the newest last."""
        running = [] if self._running is None else [self._running.response]
        return [a for a in (*self._remembered.values(), *running) if a.turn is turn]

    def find_response(self, response_id: str) -> Response | None:
        """Returns the response with this id, if it runs or is recent."""
        if self._running is not None and self._running.response.response_id == response_id:
            return self._running.response
        return self._remembered.get(response_id)

    async def _run_out_of_band(self, response: Response) -> None:
        try:
            await response.run()
        finally:
            self._out_of_band.remove(response)
            self._on_idle()

    def _drop_if(self, is_obsolete: Callable[[QueuedResponse], bool]) -> None:
        for entry in [entry for entry in self._waiting if is_obsolete(entry)]:
            self._waiting.remove(entry)
            self._drop(entry.turn)

    def _remember(self, response: Response) -> None:
        self._remembered[response.response_id] = response
        while len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)
