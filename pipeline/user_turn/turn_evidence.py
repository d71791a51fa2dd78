"""What speaks for the end of a turn while a pause lasts: how it sounded, what it says, and whether
it is a whole command."""

import asyncio
from collections.abc import Awaitable, Callable

from core.audio import Pcm
from core.errors import EarshotError, EngineError
from core.threads import run_in_thread
from engines.base import EndOfTurnDetector
from pipeline.shared.plugin_errors import plugin_errors
from pipeline.user_turn.end_of_turn import combine_probabilities
from pipeline.user_turn.turn_detection import completeness

UNDERSTOOD = 0.85
"Half a sentence can be a command, too: `turn on the lights` before `in the kitchen`."
NOT_UNDERSTOOD = 0.15
"Of an assistant that knows only commands: either one that is not over, or none."

CommandCheck = Callable[[str, str], Awaitable[bool | None]]
"Whether these words in this language are a whole command; None: it cannot be told."


class TurnDetector:
    """One session's. `expect(probability, pause)` is told whenever more is known. Without an engine
    only the words count."""

    def __init__(
        self,
        engine: EndOfTurnDetector | None,
        understands: CommandCheck,
        expect: Callable[[float | None, int], None],
    ) -> None:
        self._engine, self._understands, self._expect = engine, understands, expect
        self._pause: int | None = None
        "The sample at which the present one began."
        self._by_sound: float | None = None
        self._by_words: float | None = None
        self._by_sense: float | None = None

    def begin(self, pause: int, pcm: Pcm, tasks: asyncio.TaskGroup) -> None:
        """A pause begins, after this audio."""
        self._pause, self._by_sound = pause, None
        self._by_words = self._by_sense = None
        self._tell()
        if self._engine is not None:
            tasks.create_task(self._listen(self._engine, pause, pcm), name="end-of-turn")

    def heard(self, words: str, language: str, tasks: asyncio.TaskGroup) -> None:
        """The words of what was said before the pause."""
        self._by_words = completeness(words, language)
        self._tell()
        if self._pause is not None and words:
            tasks.create_task(self._make_sense(self._pause, words, language), name="turn-sense")

    def end(self) -> None:
        """Speech goes on, or the turn is over."""
        self._pause = None

    async def _listen(self, engine: EndOfTurnDetector, pause: int, pcm: Pcm) -> None:
        try:
            with plugin_errors("endpoint", engine.name):
                by_sound = await run_in_thread(engine.probability, pcm)
        except EngineError:
            return
        if pause == self._pause:
            self._by_sound = by_sound
            self._tell()

    async def _make_sense(self, pause: int, words: str, language: str) -> None:
        try:
            is_whole = await self._understands(words, language)
        except EarshotError:
            return  # the answer comes to it, and tells
        if pause == self._pause and is_whole is not None:
            self._by_sense = UNDERSTOOD if is_whole else NOT_UNDERSTOOD
            self._tell()

    def _tell(self) -> None:
        if self._pause is not None:
            known = combine_probabilities(self._by_sound, self._by_words, self._by_sense)
            self._expect(known, self._pause)
