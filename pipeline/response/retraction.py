"""Retraction: a user goes on after an endpoint, so earlier words and their response are taken back.

Only a response that was hardly heard and changed nothing can be taken back.
"""

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
    """Tracks which turns of one session continue an earlier one, and removes what they replace."""

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
        "By the id of the turn that continues an earlier one."

    def begin(self, turn: Turn, join: Continuation) -> None:
        """Notes that the speech of `turn` may continue an earlier utterance."""
        join.began_at = self._clock.now()
        self._joins[turn.id] = join
        for turn_id in [key for key, one in self._joins.items() if one.is_void]:
            del self._joins[turn_id]

    def is_open(self, turn: Turn) -> bool:
        """Returns whether another turn may still continue this one.

        That is so while its item is in the history and its response was hardly heard.
        """
        return self._is_open(turn, self._clock.now())

    def may(self, turn: Turn) -> bool:
        """Returns whether the turn may still replace the utterance that it continues.

        Not if the response to that changed something.
        """
        join = self._joins.get(turn.id)
        if join is None or not self._is_open(join.former.turn, join.began_at):
            return False
        return not self._has_acted(join)

    def as_if(self, turn: Turn, words: str) -> tuple[str, tuple[str, ...]]:
        """Returns (transcript, ids of the items that it would replace) if `words` were final."""
        join = self._joins.get(turn.id)
        if join is None or join.is_void:
            return words, ()
        return (words, tuple(self._items(join))) if self.may(turn) else (join.new, ())

    def is_answered(self, turn: Turn, sounding: str | None) -> bool:
        """Returns whether the utterance that the turn replaces is still being answered.

        sounding: id of the response that is being played.
        """
        join = self._joins.get(turn.id)
        return join is not None and any(
            answer.response_id == sounding or not (answer.is_done or answer.is_cancelled)
            for answer in self._answers(join.former.turns)
            if join.is_taken
        )

    async def undisputed(self, answer: Response) -> None:
        """Waits while the user may be going on with the sentence that this response answers.

        A tool must not act on half a sentence. If the user did go on, the response is cancelled,
        and this never returns.
        """
        while (join := self._disputing(answer.turn)) is not None:
            await join.void.wait()
        # the user's words interrupted it; its task is about to be cancelled
        if answer.is_cancelled:
            await asyncio.Event().wait()

    def _disputing(self, turn: Turn) -> Continuation | None:
        joins = (join for join in self._joins.values() if not join.is_void)
        return next((join for join in joins if turn in join.former.turns), None)

    def finish(self) -> None:
        """Deletes items that were replaced, once no response to them is running."""
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
        """Returns the time up to which to count what was heard of `answer`.

        A client that paces itself stops playing at the event "speech started".
        """
        now = self._clock.now()
        return since if answer.turn.marks.get(TurnMark.PLAYOUT_START, now) < since else now

    def _items(self, join: Continuation) -> Iterator[str]:
        """Yields the ids of the items to delete, the last first: no item loses its predecessor."""
        for turn in join.former.turns:
            for answer in self._answers((turn,)):
                yield from reversed(answer.items)
            if turn.item_id is not None:
                yield turn.item_id

    def _answers(self, turns: tuple[Turn, ...]) -> list[Response]:
        return [answer for turn in turns for answer in self._answering.answers_to(turn)]
