"""Barge-in: when the user speaks over an answer, pauses it, decides what the speech is, then
resumes or stops the answer."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from core.errors import EarshotError
from core.ports import Metrics
from pipeline.playout.interruption import (
    DECIDE_MS,
    InterruptionVerdict,
    OverlappingSpeech,
    is_backchannel,
    is_beginning,
    judge_overlap,
    says_only_stop,
)
from pipeline.playout.playout import Playout
from pipeline.shared.settings import InterruptingSpeech
from pipeline.shared.turn import Turn
from pipeline.user_turn.continuation import Continuation

CommandCheck = Callable[[str, str], Awaitable[bool | None]]
"""Returns whether words (first argument) in a language (second) are a complete command; None:
unknown."""


@dataclass(slots=True)
class _OverlapState:
    """State of the user's speech over an answer, as far as it is known; the fields are those of
    `OverlappingSpeech`."""

    turn: Turn
    policy: InterruptingSpeech
    language: str
    is_question: bool
    continuation: Continuation | None
    is_late: bool = False
    is_paused: bool = True
    "True while the answer is paused because of this speech."
    words: str = ""
    is_wordless: bool = False
    is_silent: bool = False
    is_brief: bool = False
    is_final: bool = False
    checked: tuple[str, bool] | None = None
    "The words that were checked last, and whether the assistant would act on them."

    def overlap(self, words: str) -> OverlappingSpeech:
        """Returns the state of the speech, with these words."""
        return OverlappingSpeech(
            words,
            self.is_late,
            self.is_silent,
            self.is_wordless,
            self.is_final,
            self.is_brief,
            makes_sense=self.checked[1] if self.checked and self.checked[0] == words else None,
            is_joined=self.continuation is not None,
        )


@dataclass(frozen=True, slots=True)
class _EndByWord:
    """The end of an answer by a wake word or a stop word."""

    turn_id: str | None
    "Turn in which the stop word was said; None: the turn after the wake word."
    language: str

    def concerns(self, turn: Turn) -> bool:
        """Returns whether the word was said in this turn, or right before it."""
        return self.turn_id in (turn.id, None)


class BargeIn:
    """Handles the user's speech over the answers of one session. `interrupt` stops the answer for
    good."""

    def __init__(
        self,
        playout: Playout,
        metrics: Metrics,
        interrupt: Callable[[], None],
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._playout, self._metrics = playout, metrics
        self._interrupt, self._tasks = interrupt, tasks
        self._overlaps: dict[str, _OverlapState] = {}
        "State by turn id: the words of one turn may still be decoded while the next is spoken."
        self._ended_by: _EndByWord | None = None
        "The word that ended the last answer, until the transcript of its turn is final."

    @property
    def is_open(self) -> bool:
        """True if speech over the answer may still turn out to be an interruption."""
        return bool(self._overlaps)

    def begin(
        self,
        turn: Turn,
        policy: InterruptingSpeech,
        language: str,
        *,
        is_question: bool,
        continuation: Continuation | None,
    ) -> None:
        """Pauses the answer, because speech began while it is made or played. Under the policy
        `wake_word` it goes on. `continuation`: the utterance that the speech may continue; words of
        that utterance do not count."""
        state = self._overlaps[turn.id] = _OverlapState(
            turn, policy, language, is_question, continuation
        )
        if policy == "wake_word":
            state.is_paused = False
            return
        self._playout.pause()
        self._tasks.create_task(self._decide_in_time(state), name=f"barge-in-{turn.id}")

    def words(self, turn: Turn, words: str) -> None:
        """Takes the words of the turn so far; empty when the recogniser found none."""
        if (state := self._state_of(turn)) is not None:
            words = (
                words
                if state.continuation is None
                else state.continuation.words_after_former(words)
            )
            state.words, state.is_wordless = words, not words
            self._judge(state)

    def speech_paused_or_resumed(self, turn: Turn, *, is_silent: bool) -> None:
        """Notes that the speech paused or resumed."""
        if (state := self._state_of(turn)) is not None:
            state.is_silent = is_silent
            # Speech that continues an utterance is judged together with it, so it is never brief.
            state.is_brief = (
                is_silent and state.continuation is None and (state.is_brief or not state.is_late)
            )
            self._judge(state)

    async def check_interruption(self, turn: Turn, words: str, check_command: CommandCheck) -> bool:
        """Checks with `check_command` whether the assistant would act on the words, if they are
        brief. Call it before the words are final and before the answer must resume or end. Returns
        True if the answer ends now."""
        state = self._state_of(turn)
        if state is None or state.policy == "wake_word" or not (state.is_brief and words):
            return False
        try:
            is_command = await check_command(words, state.language)
        except EarshotError:
            return False  # the answer meets the same error and reports it
        makes_sense = not is_beginning(words, state.language) if is_command is None else is_command
        state.checked = words, makes_sense
        # more words may have come during the check; then its result is of no use
        is_still_so = self._state_of(turn) is state and state.words == words
        return is_still_so and self._judge(state) is InterruptionVerdict.CANCEL

    def final(self, turn: Turn, words: str, *, is_over: bool = False) -> bool:
        """Takes the final words. Returns False if they are no interruption and need no answer.
        `is_over`: the answer has ended meanwhile; then words that would not have stopped it still
        need one."""
        if (state := self._state_of(turn)) is None:
            is_stop = self.is_only_stop(turn, words)
            if self._ended_by is not None and self._ended_by.concerns(turn):
                self._ended_by = None
            return not is_stop
        if state.continuation is not None and not state.continuation.stands_alone and words:
            words = state.continuation.words_added
        state.words, state.is_final = words, True
        verdict = self._judge(state)
        self._overlaps.pop(turn.id, None)
        if state.policy == "wake_word":
            return is_over and bool(words) and not says_only_stop(words, state.language)
        is_nothing = is_backchannel(words, state.language, is_question=state.is_question)
        return verdict is InterruptionVerdict.CANCEL or (is_over and not is_nothing)

    def is_only_stop(self, turn: Turn, words: str) -> bool:
        """Returns whether these words of the turn stopped, or would stop, an answer that only a
        wake word or a stop word can stop. Such words need no answer."""
        state, ended = self._state_of(turn), self._ended_by
        if state is not None:
            return state.policy == "wake_word" and says_only_stop(words, state.language)
        if ended is None or not ended.concerns(turn):
            return False
        return says_only_stop(words, ended.language)

    def would_end(self, turn: Turn, words: str, *, is_over: bool) -> bool:
        """Returns what `final` would return for these new words, without any effect."""
        if (state := self._state_of(turn)) is None:
            return True
        overlap = replace(state.overlap(words), is_final=True)
        verdict = judge_overlap(
            overlap, state.policy, state.language, is_question=state.is_question
        )
        is_nothing = is_backchannel(words, state.language, is_question=state.is_question)
        return verdict is InterruptionVerdict.CANCEL or (is_over and not is_nothing)

    def end_by_wake_word(self, language: str) -> None:
        """Ends the answer, because the wake word was said over it. If the next turn has only words
        for "stop" in this language, it needs no answer either."""
        self._metrics.count("earshot_barge_in", verdict="wake_word")
        self._ended_by = _EndByWord(None, language)
        self._end_now()

    def end_by_stop_word(self) -> None:
        """Ends the answer, because a wake word engine detected a stop word over it."""
        self._metrics.count("earshot_barge_in", verdict="stop_word")
        self._end_now()

    def end(self) -> None:
        """Forgets all speech over the answer, because the answer ended for another reason."""
        self._overlaps.clear()
        self._playout.resume()

    def _end_now(self) -> None:
        self._overlaps.clear()
        self._interrupt()
        self._playout.resume()

    def _state_of(self, turn: Turn) -> _OverlapState | None:
        return self._overlaps.get(turn.id)

    async def _decide_in_time(self, state: _OverlapState) -> None:
        await asyncio.sleep(DECIDE_MS / 1000)
        if self._state_of(state.turn) is state:
            state.is_late = True
            self._judge(state)

    def _judge(self, state: _OverlapState) -> InterruptionVerdict:
        """Judges the speech as it is known now, and stops or resumes the answer accordingly."""
        overlap = state.overlap(state.words)
        verdict = judge_overlap(
            overlap, state.policy, state.language, is_question=state.is_question
        )
        if verdict is InterruptionVerdict.CANCEL:
            if state.policy == "wake_word":
                self._metrics.count("earshot_barge_in", verdict="stop_word")
                self._ended_by = _EndByWord(state.turn.id, state.language)
            else:
                self._metrics.count("earshot_barge_in", verdict="interruption")
            self._end_now()
        elif verdict is InterruptionVerdict.RESUME and state.is_paused:
            self._metrics.count("earshot_barge_in", verdict="resumed")
            state.is_paused = False
            if not any(other.is_paused for other in self._overlaps.values()):
                self._playout.resume()
        return verdict
