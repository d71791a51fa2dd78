"""How likely what was said is a whole turn, by its words: "turn on the" is not, "thanks" is.

Cheap and pure: it reads the end of the text, and its first words. Word lists are in
`completeness.toml`; of other languages only punctuation tells something. The values are judgements,
not measurements.
"""

import asyncio
import re
import tomllib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from functools import cache
from importlib.resources import files

import msgspec

from core.audio import Pcm
from core.errors import EarshotError, EngineError
from core.tasks import run_in_thread
from engines.base import EndOfTurnDetector
from pipeline.shared.plugin_errors import plugin_errors
from pipeline.user_turn.endpointing import combine_probabilities

HESITATES = 0.05
OPEN = 0.1
"It ends with a word that nobody ends with, or lacks its object."
MAYBE_OPEN = 0.25
"A number without its unit, digits that go on, a comma."
SENTENCE = 0.65
"Recognisers set full stops freely; it says little."
WHOLE = 0.8
"A command or a question that lacks nothing."
SURELY = 0.95
"Polite endings, and what is complete by itself."

MIN_DIGITS, MAX_DIGITS = 3, 8
"Digits read one by one: fewer may be anything, more are a whole phone number."

LONGEST_PHRASE = 5
"Words, in the lists."

_WORD = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+(?:['-][^\W\d_]+)*'?")
_GOES_ON = re.compile(r"(?:\.\.+|…|[,;:،、，；：—–-])[\s\"'»”)]*$")
_ASKED = re.compile(r"[?!？！؟][\s\"'»”)]*$")
_STOPPED = re.compile(r"[.。।][\s\"'»”)]*$")


class CompletenessWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of one language; see the file."""

    open: frozenset[str]
    stranded: frozenset[str]
    hesitations: frozenset[str]
    wants_more: frozenset[str]
    orders: frozenset[str]
    particles: frozenset[str]
    alone: frozenset[str]
    polite: frozenset[str]
    openers: frozenset[str]
    questions: frozenset[str]
    counted: frozenset[str]
    numbers: frozenset[str]
    digits: frozenset[str]


def completeness(text: str, language: str) -> float | None:
    """0 to 1 that nothing is missing; None: it cannot be told. `language`: ISO 639-1, a region may
    follow; `text`: as a recogniser writes it, with or without punctuation."""
    text = text.replace("’", "'").strip()
    said = _WORD.findall(text.casefold())
    if not said:
        return None
    words = _table().get(language.casefold().replace("_", "-").partition("-")[0])
    by_mark, by_words = _by_mark(text), _by_words(said, words) if words else None
    if by_mark is None or by_words is None:
        return by_words if by_mark is None else by_mark
    if by_mark == MAYBE_OPEN:
        return min(by_words, by_mark)
    return by_words if by_words < SENTENCE else max(by_words, by_mark)


def _by_mark(text: str) -> float | None:
    end = text[-16:]
    if _GOES_ON.search(end):
        return MAYBE_OPEN
    if _ASKED.search(end):
        return WHOLE
    return SENTENCE if _STOPPED.search(end) else None


def _by_words(said: Sequence[str], words: CompletenessWords) -> float | None:
    whole, rest = " ".join(said), _without_opener(said, words)
    if whole in words.alone or whole in words.polite:
        return SURELY
    if not rest or whole in words.wants_more or " ".join(rest) in words.wants_more:
        return OPEN
    by_end = _by_end(said, words)
    if by_end is not None:
        return by_end
    is_question = rest[0] in words.questions and len(rest) > 2
    if _ends(said, words.open):
        return None if is_question and said[-1] in words.stranded else OPEN
    if rest[0] in words.orders:
        has_object = any(word not in words.particles for word in rest[1:])
        return WHOLE if has_object else OPEN
    return WHOLE if is_question else None


def _by_end(said: Sequence[str], words: CompletenessWords) -> float | None:
    if _ends(said, words.polite):
        return SURELY
    return HESITATES if _ends(said, words.hesitations) else _by_number(said, words)


def _by_number(said: Sequence[str], words: CompletenessWords) -> float | None:
    count = _trailing(said, lambda word: word.isdigit() or word in words.numbers)
    is_year = len(said[-1]) > 3 and said[-1].isdigit()
    if 0 < count < len(said) and not is_year and said[-count - 1] in words.counted:
        return MAYBE_OPEN
    digits = _trailing(said, lambda word: word in words.digits or _is_digit(word))
    return MAYBE_OPEN if MIN_DIGITS <= digits <= MAX_DIGITS else None


def _is_digit(word: str) -> bool:
    return len(word) == 1 and word.isdigit()


def _without_opener(said: Sequence[str], words: CompletenessWords) -> Sequence[str]:
    """What is left of "could you please turn on the light" from "turn" on."""
    first = 0
    while length := _opener(said[first : first + LONGEST_PHRASE], words):
        first += length
    return said[first:]


def _opener(said: Sequence[str], words: CompletenessWords) -> int:
    """Words of the longest opener that this begins with; 0: with none."""
    lengths = range(len(said), 0, -1)
    return next((n for n in lengths if " ".join(said[:n]) in words.openers), 0)


def _ends(said: Sequence[str], phrases: Collection[str]) -> bool:
    last = said[-LONGEST_PHRASE:]
    return any(" ".join(last[first:]) in phrases for first in range(len(last)))


def _trailing(said: Sequence[str], is_one: Callable[[str], bool]) -> int:
    """How many of the last words are such."""
    count = 0
    while count < len(said) and is_one(said[-count - 1]):
        count += 1
    return count


@cache
def _table() -> Mapping[str, CompletenessWords]:
    text = (files("pipeline.user_turn") / "completeness.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, CompletenessWords])


# What speaks for the end of a turn while a pause lasts: how it sounded, what it says, and whether
# it is a whole command.

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
