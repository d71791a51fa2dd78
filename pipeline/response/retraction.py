"""Retraction: a user goes on after an endpoint, so earlier words and their response are taken back.

Only a response that was hardly heard and changed nothing can be taken back.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Literal

from core.conversation.events import ItemDeleted, SessionEvent
from core.ports import Clock
from pipeline.conversation.history import History
from pipeline.response.queue import ResponseQueue
from pipeline.response.response import Response
from pipeline.shared.turn import Turn, TurnMark
from pipeline.user_turn.continuation import Continuation

ContinuationOutcome = Literal["joined", "apart", "no_words"]
"""joined: it replaced the earlier turn, and both are answered once. apart: it is a turn of its own.
no_words: nothing was said."""


class Retraction:
    """Tracks which turns of one session continue an earlier one, and removes what they replace."""

    def __init__(
        self,
        history: History,
        queue: ResponseQueue,
        clock: Clock,
        emit: Callable[[SessionEvent], None],
    ) -> None:
        self._history, self._queue = history, queue
        self._clock, self._emit = clock, emit
        self._continuations: dict[str, Continuation] = {}
        "By the id of the turn that continues an earlier one."

    def begin(self, turn: Turn, continuation: Continuation) -> None:
        """Notes that the speech of `turn` may continue an earlier utterance."""
        continuation.began_at = self._clock.now()
        self._continuations[turn.id] = continuation
        # forget older turns that turned out to stand alone
        for turn_id in [key for key, old in self._continuations.items() if old.stands_alone]:
            del self._continuations[turn_id]

    def is_open(self, turn: Turn) -> bool:
        """Returns whether another turn may still continue this one.

        That is so while its item is in the history and its response was hardly heard.
        """
        return self._is_open(turn, self._clock.now())

    def may_replace(self, turn: Turn) -> bool:
        """Returns whether the turn may still replace the utterance that it continues.

        False if a tool of the response to that utterance changed something.
        """
        continuation = self._continuations.get(turn.id)
        if continuation is None or not self._is_open(
            continuation.former.turn, continuation.began_at
        ):
            return False
        return not self._has_acted(continuation)

    def outcome(self, turn: Turn, words: str) -> ContinuationOutcome | None:
        """Returns what became of a turn that may have continued an earlier one, once its words are
        known; None: it continued none."""
        continuation = self._continuations.get(turn.id)
        if continuation is None:
            return None
        if continuation.is_taken:
            return "joined"
        return "apart" if words else "no_words"

    def transcript_if_final(self, turn: Turn, words: str) -> tuple[str, tuple[str, ...]]:
        """Returns (transcript, ids of the items that it would replace) if `words` were final.

        words: words of the turn so far, including those of the utterance that it continues.
        """
        continuation = self._continuations.get(turn.id)
        if continuation is None or continuation.stands_alone:
            return words, ()
        return (
            (words, tuple(self._items(continuation)))
            if self.may_replace(turn)
            else (continuation.words_added, ())
        )

    def is_former_response_active(self, turn: Turn, playing_id: str | None) -> bool:
        """Returns whether the utterance that the turn replaces is still being answered.

        playing_id: id of the response that is being played.
        """
        continuation = self._continuations.get(turn.id)
        return continuation is not None and any(
            response.response_id == playing_id or not (response.is_done or response.is_cancelled)
            for response in self._responses(continuation.former.turns)
            if continuation.is_taken
        )

    async def wait_until_settled(self, response: Response) -> None:
        """Waits while the user may be going on with the sentence that this response answers.

        A tool must not act on half a sentence. If the user did go on, the response is cancelled,
        and this never returns.
        """
        while (continuation := self._open_continuation(response.turn)) is not None:
            await continuation.alone_event.wait()
        # The user's words interrupted the response. Its task is about to be cancelled, so wait for
        # that.
        if response.is_cancelled:
            await asyncio.Event().wait()

    def _open_continuation(self, turn: Turn) -> Continuation | None:
        undecided = (
            continuation
            for continuation in self._continuations.values()
            if not continuation.stands_alone
        )
        return next(
            (continuation for continuation in undecided if turn in continuation.former.turns), None
        )

    def finish(self) -> None:
        """Deletes items that were replaced, once no response to them is running. Called whenever a
        response begins or the queue is idle."""
        for turn_id, continuation in [
            entry for entry in self._continuations.items() if entry[1].is_taken
        ]:
            if not all(response.is_done for response in self._responses(continuation.former.turns)):
                continue
            del self._continuations[turn_id]
            for item_id in (
                () if self._has_acted(continuation) else tuple(self._items(continuation))
            ):
                if self._history.remove(item_id):
                    self._emit(ItemDeleted(item_id))

    def _has_acted(self, continuation: Continuation) -> bool:
        return any(response.has_acted for response in self._responses(continuation.former.turns))

    def _is_open(self, turn: Turn, speech_began_at: float) -> bool:
        item = None if turn.item_id is None else self._history.find(turn.item_id)
        return item is not None and all(
            response.is_hardly_heard(self._counts_until(response, speech_began_at))
            for response in self._responses((turn,))
        )

    def _counts_until(self, response: Response, speech_began_at: float) -> float:
        """Returns the monotonic seconds up to which the sound of `response` counts as heard.

        That is `speech_began_at`, the start of the new speech, if the answer was already audible
        then: a client that paces itself stops playing at the event "speech started". Otherwise now.
        """
        now = self._clock.now()
        return (
            speech_began_at
            if response.turn.marks.get(TurnMark.PLAYOUT_START, now) < speech_began_at
            else now
        )

    def _items(self, continuation: Continuation) -> Iterator[str]:
        """Yields the ids of the items to delete, the last first: no item loses its predecessor."""
        for turn in continuation.former.turns:
            for response in self._responses((turn,)):
                yield from reversed(response.items)
            if turn.item_id is not None:
                yield turn.item_id

    def _responses(self, turns: tuple[Turn, ...]) -> list[Response]:
        return [response for turn in turns for response in self._queue.answers_to(turn)]
