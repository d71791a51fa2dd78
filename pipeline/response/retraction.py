"""A user who went on: what was said before, and its answer that hardly anybody heard, make way."""

import asyncio
from collections.abc import Callable, Iterator

from core.events import ItemDeleted, SessionEvent
from core.ports import Clock
from pipeline.conversation.history import History
from pipeline.response.queue import ResponseQueue
from pipeline.response.response import Response
from pipeline.shared.turn import Turn, TurnMark
from pipeline.user_turn.continuation import Continuation


class Retraction:
    """One session's joins."""

    def __init__(
        self,
        history: History,
        answering: ResponseQueue,
        clock: Clock,
        emit: Callable[[SessionEvent], None],
    ) -> None:
        self._history, self._answering = history, answering
        self._clock, self._emit = clock, emit
        self._joins: dict[str, Continuation] = {}
        "By the turn that goes on."

    def begin(self, turn: Turn, join: Continuation) -> None:
        """Speech of `turn` may go on what was said."""
        join.began_at = self._clock.now()
        self._joins[turn.id] = join
        for turn_id in [key for key, one in self._joins.items() if one.is_void]:
            del self._joins[turn_id]

    def is_open(self, turn: Turn) -> bool:
        """Its item is still there, and nobody knows much of its answer."""
        return self._is_open(turn, self._clock.now())

    def may(self, turn: Turn) -> bool:
        """Whether it may still take the place of what was said, whose answer changed nothing."""
        join = self._joins.get(turn.id)
        if join is None or not self._is_open(join.former.turn, join.began_at):
            return False
        return not self._has_acted(join)

    def as_if(self, turn: Turn, words: str) -> tuple[str, tuple[str, ...]]:
        """What the turn would say if these words are all of it, and the items whose place that
        would take."""
        join = self._joins.get(turn.id)
        if join is None or join.is_void:
            return words, ()
        return (words, tuple(self._items(join))) if self.may(turn) else (join.new, ())

    def is_answered(self, turn: Turn, sounding: str | None) -> bool:
        """What the turn takes the place of is still being answered. `sounding`: the response that
        is played."""
        join = self._joins.get(turn.id)
        return join is not None and any(
            answer.response_id == sounding or not (answer.is_done or answer.is_cancelled)
            for answer in self._answers(join.former.turns)
            if join.is_taken
        )

    async def undisputed(self, answer: Response) -> None:
        """Wait while somebody may be going on what it answers: on half a sentence nothing is done.
        If that is so it is cancelled, and this does not return."""
        while (join := self._disputing(answer.turn)) is not None:
            await join.void.wait()
        if answer.is_cancelled:  # what was said interrupts it: its end is on the way
            await asyncio.Event().wait()

    def _disputing(self, turn: Turn) -> Continuation | None:
        joins = (join for join in self._joins.values() if not join.is_void)
        return next((join for join in joins if turn in join.former.turns), None)

    def finish(self) -> None:
        """Delete former words whose place was taken, as soon as no answer to them goes on."""
        for turn_id, join in [one for one in self._joins.items() if one[1].is_taken]:
            if not all(answer.is_done for answer in self._answers(join.former.turns)):
                continue
            del self._joins[turn_id]
            for item_id in () if self._has_acted(join) else tuple(self._items(join)):
                if self._history.remove(item_id):
                    self._emit(ItemDeleted(item_id))

    def _has_acted(self, join: Continuation) -> bool:
        return any(answer.has_acted for answer in self._answers(join.former.turns))

    def _is_open(self, turn: Turn, since: float) -> bool:
        item = None if turn.item_id is None else self._history.find(turn.item_id)
        return item is not None and all(
            answer.is_hardly_heard(self._silent_from(answer, since))
            for answer in self._answers((turn,))
        )

    def _silent_from(self, answer: Response, since: float) -> float:
        """A client that paces itself falls silent when it is told of speech."""
        now = self._clock.now()
        return since if answer.turn.marks.get(TurnMark.PLAYOUT_START, now) < since else now

    def _items(self, join: Continuation) -> Iterator[str]:
        """The last ones first, so that none loses what it follows."""
        for turn in join.former.turns:
            for answer in self._answers((turn,)):
                yield from reversed(answer.items)
            if turn.item_id is not None:
                yield turn.item_id

    def _answers(self, turns: tuple[Turn, ...]) -> list[Response]:
        return [answer for turn in turns for answer in self._answering.answers_to(turn)]
