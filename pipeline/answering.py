"""Which answer is being given, which wait, and what an interruption leaves of them."""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from core.errors import Conflict
from core.events import CancelReason
from pipeline.answer import Answer
from pipeline.turn import Turn

logger = logging.getLogger(__name__)

MAX_WAITING = 8
"Announcements and utterances that wait for an answer to end; a person follows no more."
MAX_REMEMBERED = 32
"Answers whose word timing is kept, for a client that tells later how much it played."


@dataclass(slots=True)
class _Entry:
    make: Callable[[], Answer]
    drop: Callable[[], None]
    "Called instead when it is not given after all."
    is_announcement: bool
    is_apart: bool = False
    "Beside the conversation: nothing that is said there makes it out of date."
    takes_all: bool = False
    "It answers whatever was said until it begins."
    cancelled: CancelReason | None = None
    "It is only told as created and cancelled: somebody may wait to hear of it."


@dataclass(frozen=True, slots=True)
class _Running:
    entry: _Entry
    answer: Answer


class Answering:
    """Gives answers one at a time, in order; written ones beside the conversation at once."""

    def __init__(self, on_idle: Callable[[], None]) -> None:
        self._on_idle = on_idle
        self._waiting: deque[_Entry] = deque()
        self._wake = asyncio.Event()
        self._running: _Running | None = None
        self._beside: list[Answer] = []
        self._tasks: asyncio.TaskGroup | None = None
        self._remembered: OrderedDict[str, Answer] = OrderedDict()

    @property
    def is_busy(self) -> bool:
        """An answer is being generated, or waits to be."""
        return self._running is not None or bool(self._waiting)

    @property
    def is_working(self) -> bool:
        """Something is being generated, or waits to be."""
        return self.is_busy or bool(self._beside)

    @property
    def is_in_conversation(self) -> bool:
        """The same, of answers that belong to the conversation."""
        running = self._running is not None and not self._running.entry.is_apart
        return running or any(not entry.is_apart for entry in self._waiting)

    @property
    def is_full(self) -> bool:
        """One more answer would cost another its place."""
        return len(self._waiting) + len(self._beside) >= MAX_WAITING

    async def run(self, tasks: asyncio.TaskGroup) -> None:
        self._tasks = tasks
        while True:
            while self._waiting:
                entry = self._waiting.popleft()
                answer = entry.make()
                if entry.cancelled is not None:
                    answer.cancel(entry.cancelled)
                task = tasks.create_task(answer.run(), name=answer.response_id)
                self._running = _Running(entry, answer)
                await asyncio.wait([task])
                self._running = None
                self._remember(answer)
            self._wake.clear()
            self._on_idle()
            await self._wake.wait()

    def enqueue(
        self,
        make: Callable[[], Answer],
        drop: Callable[[], None],
        *,
        is_announcement: bool = False,
        is_apart: bool = False,
        is_written: bool = False,
        takes_all: bool = False,
    ) -> None:
        """Answer when those before are done. When too many wait the oldest goes, but an
        announcement only when there is nothing else."""
        if is_apart and is_written and self._tasks is not None:  # it needs no voice
            answer = make()
            self._beside.append(answer)
            self._tasks.create_task(self._give_beside(answer), name=answer.response_id)
            return
        if takes_all:  # together with what waits for an answer already: one is enough
            self._drop_if(lambda entry: entry.takes_all and entry.cancelled is None)
        if len(self._waiting) >= MAX_WAITING:
            answers = (entry for entry in self._waiting if not entry.is_announcement)
            oldest = next(answers, self._waiting[0])
            logger.warning("! %d answers wait, dropping the oldest", MAX_WAITING)
            self._waiting.remove(oldest)
            oldest.drop()
        self._waiting.append(_Entry(make, drop, is_announcement, is_apart, takes_all))
        self._wake.set()

    def cancel(self, reason: CancelReason, response_id: str | None = None) -> None:
        """Stop this answer; without an id the conversation's, which is running or about to. Raises
        Conflict when there is none."""
        running = self._running
        if response_id is None:
            self._cancel_in_conversation(reason)
            return
        known = (*self._beside, *([] if running is None else [running.answer]))
        for answer in known:
            if answer.response_id == response_id:
                answer.cancel(reason)
                return
        message = f"response {response_id!r} is not being generated"
        raise Conflict(message, code="response_cancel_not_active")

    def _cancel_in_conversation(self, reason: CancelReason) -> None:
        running = self._running
        if running is not None and not running.entry.is_apart:
            running.answer.cancel(reason)
            return
        waiting = (e for e in self._waiting if not (e.is_apart or e.cancelled))
        if (entry := next(waiting, None)) is None:
            message = "no response is being generated"
            raise Conflict(message, code="response_cancel_not_active")
        entry.cancelled = reason

    def interrupt(self) -> None:
        """The user speaks: answers are out of date, announcements that nobody heard are not."""
        for entry in self._waiting:
            if not (entry.is_announcement or entry.is_apart):
                entry.cancelled = "turn_detected"
        running = self._running
        if running is None or running.entry.is_apart:
            return
        if running.entry.is_announcement and not running.answer.is_heard:
            entry = running.entry
            self._waiting.appendleft(_Entry(entry.make, entry.drop, is_announcement=True))
        running.answer.cancel("turn_detected")

    def close(self) -> list[Answer]:
        """Nothing more is answered. Returns the answers that were given, as far as remembered."""
        self._drop_if(lambda _: True)
        running = [] if self._running is None else [self._running.answer]
        return [*self._remembered.values(), *running, *self._beside]

    def find(self, item_id: str) -> Answer | None:
        """The answer that made this item, if it is recent."""
        running = [] if self._running is None else [self._running.answer]
        known = (*running, *self._beside, *self._remembered.values())
        return next((answer for answer in known if answer.item_id == item_id), None)

    def answers_to(self, turn: Turn) -> list[Answer]:
        """What was begun in answer to it, if it is recent; the newest last."""
        running = [] if self._running is None else [self._running.answer]
        return [a for a in (*self._remembered.values(), *running) if a.turn is turn]

    def find_response(self, response_id: str) -> Answer | None:
        if self._running is not None and self._running.answer.response_id == response_id:
            return self._running.answer
        return self._remembered.get(response_id)

    async def _give_beside(self, answer: Answer) -> None:
        try:
            await answer.run()
        finally:
            self._beside.remove(answer)
            self._on_idle()

    def _drop_if(self, is_void: Callable[[_Entry], bool]) -> None:
        for entry in [entry for entry in self._waiting if is_void(entry)]:
            self._waiting.remove(entry)
            entry.drop()

    def _remember(self, answer: Answer) -> None:
        self._remembered[answer.response_id] = answer
        while len(self._remembered) > MAX_REMEMBERED:
            self._remembered.popitem(last=False)
