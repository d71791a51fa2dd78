"""Barge-in: when the user speaks over an answer, pauses it, decides what the speech is, then
resumes or stops the answer."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from core.errors import EarshotError
from core.ports import Metrics
from pipeline.playout.interruption import (
    DECIDE_MS,
    InterruptionVerdict,
    OverlappingSpeech,
    is_backchannel,
    is_beginning,
    judge_overlap,
)
from pipeline.playout.playout import Playout
from pipeline.shared.turn import Turn
from pipeline.user_turn.continuation import Continuation
from pipeline.user_turn.turn_detection import CommandCheck


@dataclass(slots=True)
class _OverlapState:
    """The user's speech over an answer, and what is known of it; see `OverlappingSpeech`."""

    turn: Turn
    policy: Literal["on", "patient"]
    language: str
    is_question: bool
    join: Continuation | None
    is_late: bool = False
    is_paused: bool = True
    "The answer is paused because of it."
    words: str = ""
    is_wordless: bool = False
    is_silent: bool = False
    is_brief: bool = False
    is_final: bool = False
    weighed: tuple[str, bool] | None = None
    "Words that were checked, and whether the assistant would act on them."

    def overlap(self, words: str) -> OverlappingSpeech:
        """Returns the state of the speech, with these words."""
        return OverlappingSpeech(
            words,
            self.is_late,
            self.is_silent,
            self.is_wordless,
            self.is_final,
            self.is_brief,
            makes_sense=self.weighed[1] if self.weighed and self.weighed[0] == words else None,
            is_joined=self.join is not None,
        )


class BargeIn:
    """Handles the user's speech over the answers of one session. `give_way` stops the answer for
    good."""

    def __init__(self, playout: Playout, metrics: Metrics, give_way: Callable[[], None]) -> None:
        self._playout, self._metrics, self._give_way = playout, metrics, give_way
        self._held: dict[str, _OverlapState] = {}
        "State by turn id: the words of one turn may still be decoded while the next is spoken."

    @property
    def is_open(self) -> bool:
        """True if speech over the answer may still turn out to be an interruption."""
        return bool(self._held)

    def begin(
        self,
        turn: Turn,
        policy: Literal["on", "patient"],
        language: str,
        *,
        is_question: bool,
        join: Continuation | None,
        tasks: asyncio.TaskGroup,
    ) -> None:
        """Pauses the answer, because speech began while it is made or played. `join`: the utterance
        that the speech may continue; words of that utterance do not count."""
        held = self._held[turn.id] = _OverlapState(turn, policy, language, is_question, join)
        self._playout.pause()
        tasks.create_task(self._decide_in_time(held), name=f"barge-in-{turn.id}")

    def words(self, turn: Turn, words: str) -> None:
        """Takes the words of the turn so far; empty when the recogniser found none."""
        if (held := self._of(turn)) is not None:
            words = words if held.join is None else held.join.beyond(words)
            held.words, held.is_wordless = words, not words
            self._judge(held)

    def silent(self, turn: Turn, *, is_silent: bool) -> None:
        """Notes that the speech paused or resumed."""
        if (held := self._of(turn)) is not None:
            held.is_silent = is_silent
            # Speech that continues an utterance is judged together with it, so it is never brief.
            held.is_brief = is_silent and held.join is None and (held.is_brief or not held.is_late)
            self._judge(held)

    async def weigh(self, turn: Turn, words: str, ask: CommandCheck) -> bool:
        """Checks with `ask` whether the assistant would act on the words, if they are brief. Call
        it before the words are final and before the answer must resume or end. Returns True if the
        answer ends now."""
        held = self._of(turn)
        if held is None or not (held.is_brief and words):
            return False
        try:
            is_whole = await ask(words, held.language)
        except EarshotError:
            return False  # the answer meets the same error and reports it
        makes_sense = not is_beginning(words, held.language) if is_whole is None else is_whole
        held.weighed = words, makes_sense
        is_still_so = self._of(turn) is held and held.words == words
        return is_still_so and self._judge(held) is InterruptionVerdict.CANCEL

    def final(self, turn: Turn, words: str, *, is_over: bool = False) -> bool:
        """Takes the final words. Returns False if they are no interruption and need no answer.
        `is_over`: the answer has ended meanwhile; then words that would not have stopped it still
        need one."""
        if (held := self._of(turn)) is None:
            return True
        if held.join is not None and not held.join.is_void and words:
            words = held.join.new
        held.words, held.is_final = words, True
        verdict = self._judge(held)
        self._held.pop(turn.id, None)
        is_nothing = is_backchannel(words, held.language, is_question=held.is_question)
        return verdict is InterruptionVerdict.CANCEL or (is_over and not is_nothing)

    def ends(self, turn: Turn, words: str, *, is_over: bool) -> bool:
        """Returns what `final` would return for these new words, without any effect."""
        if (held := self._of(turn)) is None:
            return True
        overlap = replace(held.overlap(words), is_final=True)
        verdict = judge_overlap(overlap, held.policy, held.language, is_question=held.is_question)
        is_nothing = is_backchannel(words, held.language, is_question=held.is_question)
        return verdict is InterruptionVerdict.CANCEL or (is_over and not is_nothing)

    def end(self) -> None:
        """Forgets all speech over the answer, because the answer ended for another reason."""
        self._held.clear()
        self._playout.resume()

    def _of(self, turn: Turn) -> _OverlapState | None:
        return self._held.get(turn.id)

    async def _decide_in_time(self, held: _OverlapState) -> None:
        await asyncio.sleep(DECIDE_MS / 1000)
        if self._of(held.turn) is held:
            held.is_late = True
            self._judge(held)

    def _judge(self, held: _OverlapState) -> InterruptionVerdict:
        """Judges the speech as it is known now, and stops or resumes the answer accordingly."""
        overlap = held.overlap(held.words)
        verdict = judge_overlap(overlap, held.policy, held.language, is_question=held.is_question)
        if verdict is InterruptionVerdict.CANCEL:
            self._metrics.count("earshot_barge_in", verdict="interruption")
            self._held.clear()
            self._give_way()
            self._playout.resume()
        elif verdict is InterruptionVerdict.RESUME and held.is_paused:
            self._metrics.count("earshot_barge_in", verdict="resumed")
            held.is_paused = False
            if not any(other.is_paused for other in self._held.values()):
                self._playout.resume()
        return verdict
