"""Estimates how likely a turn is complete, by its words, by its sound, and by whether it is a
command. By the words, "turn on the" is incomplete and "thanks" is complete.

`completeness` is cheap and pure: it reads the first words and the end of the text. Word lists are
in `completeness.toml`; in languages without a list only punctuation counts. The probabilities are
judgements, not measurements. `TurnDetector` combines them with the judgement of a model that
listens to the sound, and with the check for a complete command.
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
from pipeline.user_turn.speech_detection.endpointing import combine_probabilities

HESITATES = 0.05
"""Probability when the text ends with a hesitation such as "uh"."""
OPEN = 0.1
"Probability when the text ends with a word that ends no sentence, or lacks its object."
MAYBE_OPEN = 0.25
"Probability when a number lacks its unit, digits may go on, or the text ends with a comma."
SENTENCE = 0.65
"Probability after a full stop. It says little: recognisers set full stops freely."
WHOLE = 0.8
"Probability of a command or a question that lacks nothing."
SURELY = 0.95
"Probability of polite endings, and of phrases that are complete on their own."

MIN_DIGITS, MAX_DIGITS = 3, 8
"""Number of digits, read one by one, that may go on: fewer may be anything, more are a whole phone
number."""

LONGEST_PHRASE = 5
"Longest phrase in the word lists, in words."

_WORD = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+(?:['-][^\W\d_]+)*'?")
_GOES_ON = re.compile(r"(?:\.\.+|…|[,;:،、，；：—–-])[\s\"'»”)]*$")
_ASKED = re.compile(r"[?!？！؟][\s\"'»”)]*$")
_STOPPED = re.compile(r"[.。।][\s\"'»”)]*$")


class CompletenessWords(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Word lists of one language; see the comments in `completeness.toml`."""

    open: frozenset[str]
    stranded: frozenset[str]
    hesitations: frozenset[str]
    wants_more: frozenset[str]
    wishes: frozenset[str]
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
    """Returns the probability (0 to 1) that nothing is missing; None: unknown. `text`: as a
    recogniser writes it, with or without punctuation. `language`: ISO 639-1, a region may
    follow."""
    text = text.replace("’", "'").strip()
    spoken = _WORD.findall(text.casefold())
    if not spoken:
        return None
    words = _table().get(language.casefold().replace("_", "-").partition("-")[0])
    by_mark, by_words = _by_mark(text), _by_words(spoken, words) if words else None
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


def _by_words(spoken: Sequence[str], words: CompletenessWords) -> float | None:
    """Returns the probability by the words alone; None: unknown."""
    whole, rest = " ".join(spoken), _without_opener(spoken, words)
    if whole in words.alone or whole in words.polite:
        return SURELY
    if not rest or whole in words.wants_more or " ".join(rest) in words.wants_more:
        return OPEN
    by_end = _by_end(spoken, words)
    if by_end is not None:
        return by_end
    is_question = rest[0] in words.questions and len(rest) > 2
    if _ends(spoken, words.open):
        return None if is_question and spoken[-1] in words.stranded else OPEN
    if rest[0] in words.orders:
        has_object = any(word not in words.particles for word in rest[1:])
        return WHOLE if has_object else OPEN
    return WHOLE if is_question or _is_whole_wish(rest, words) else None


def _is_whole_wish(spoken: Sequence[str], words: CompletenessWords) -> bool:
    """Returns whether the words are a wish with an object of two words or more: "I'd like a tea".

    One word may be a verb, and so only the beginning: "je voudrais allumer".
    """
    lengths = range(1, min(LONGEST_PHRASE, len(spoken) - 2) + 1)
    return any(" ".join(spoken[:length]) in words.wishes for length in lengths)


def _by_end(spoken: Sequence[str], words: CompletenessWords) -> float | None:
    if _ends(spoken, words.polite):
        return SURELY
    return HESITATES if _ends(spoken, words.hesitations) else _by_number(spoken, words)


def _by_number(spoken: Sequence[str], words: CompletenessWords) -> float | None:
    count = _trailing(spoken, lambda word: word.isdigit() or word in words.numbers)
    is_year = len(spoken[-1]) > 3 and spoken[-1].isdigit()
    if 0 < count < len(spoken) and not is_year and spoken[-count - 1] in words.counted:
        return MAYBE_OPEN
    digits = _trailing(spoken, lambda word: word in words.digits or _is_digit(word))
    return MAYBE_OPEN if MIN_DIGITS <= digits <= MAX_DIGITS else None


def _is_digit(word: str) -> bool:
    return len(word) == 1 and word.isdigit()


def _without_opener(spoken: Sequence[str], words: CompletenessWords) -> Sequence[str]:
    """Returns the words without polite openers: of "could you please turn on the light", those from
    "turn" on."""
    first = 0
    while length := _opener(spoken[first : first + LONGEST_PHRASE], words):
        first += length
    return spoken[first:]


def _opener(spoken: Sequence[str], words: CompletenessWords) -> int:
    """Returns the number of words of the longest opener at the beginning; 0 if there is none."""
    lengths = range(len(spoken), 0, -1)
    return next((n for n in lengths if " ".join(spoken[:n]) in words.openers), 0)


def _ends(spoken: Sequence[str], phrases: Collection[str]) -> bool:
    last = spoken[-LONGEST_PHRASE:]
    return any(" ".join(last[first:]) in phrases for first in range(len(last)))


def _trailing(spoken: Sequence[str], is_one: Callable[[str], bool]) -> int:
    """Returns how many of the last words satisfy `is_one`."""
    count = 0
    while count < len(spoken) and is_one(spoken[-count - 1]):
        count += 1
    return count


@cache
def _table() -> Mapping[str, CompletenessWords]:
    text = (files("pipeline.user_turn") / "completeness.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, CompletenessWords])


# The estimate while a pause lasts, from three sources: how the speech sounded, its words, and
# whether they are a complete command.

UNDERSTOOD = 0.85
"""Probability that the turn is over when its words are a complete command. Half a sentence can be
one, too: `turn on the lights` before `in the kitchen`."""
NOT_UNDERSTOOD = 0.15
"""Probability that the turn is over when the words are no command, but may be the beginning of one,
with an assistant that knows only commands. Words that begin no command say nothing: somebody who
talks about something else may have finished."""

UnfinishedCommandCheck = Callable[[str, str], Awaitable[bool | None]]
"""Returns whether words (first argument) in a language (second) may become a command with more
words (True), or are a complete one (False); None: neither is known."""


class TurnDetector:
    """Estimates during a pause how likely the turn is over, from its sound, its words, and whether
    they are a complete command.

    `engine`: judges the sound; None: only words count. `is_unfinished_command`: checks whether a
    command is complete. `set_delay(probability, pause)` is called whenever more is known; `pause`
    is the sample at which the pause began.
    """

    def __init__(
        self,
        engine: EndOfTurnDetector | None,
        is_unfinished_command: UnfinishedCommandCheck,
        set_delay: Callable[[float | None, int], None],
        tasks: asyncio.TaskGroup,
    ) -> None:
        self._engine, self._is_unfinished_command = engine, is_unfinished_command
        self._set_delay, self._tasks = set_delay, tasks
        self._pause: int | None = None
        "Sample at which the present pause began; None: there is no pause."
        self._by_sound: float | None = None
        self._by_words: float | None = None
        self._by_command: float | None = None

    def begin(self, pause: int, pcm: Pcm) -> None:
        """Begins a pause at sample `pause`. `pcm`: the audio of the utterance before it, 16 kHz."""
        self._pause, self._by_sound = pause, None
        self._by_words = self._by_command = None
        self._update()
        if self._engine is not None:
            self._tasks.create_task(self._judge_sound(self._engine, pause, pcm), name="end-of-turn")

    def take_words(self, words: str, language: str) -> None:
        """Takes the words that were spoken before the pause."""
        self._by_words = completeness(words, language)
        self._update()
        if self._pause is not None and words:
            self._tasks.create_task(
                self._judge_command(self._pause, words, language), name="turn-command"
            )

    def end(self) -> None:
        """Ends the pause: speech resumes, or the turn is over."""
        self._pause = None

    async def _judge_sound(self, engine: EndOfTurnDetector, pause: int, pcm: Pcm) -> None:
        try:
            with plugin_errors("endpoint", engine.name):
                by_sound = await run_in_thread(engine.probability, pcm)
        except EngineError:
            return
        if pause == self._pause:
            self._by_sound = by_sound
            self._update()

    async def _judge_command(self, pause: int, words: str, language: str) -> None:
        try:
            is_unfinished = await self._is_unfinished_command(words, language)
        except EarshotError:
            return  # the answer meets the same error and reports it
        if pause == self._pause and is_unfinished is not None:
            self._by_command = NOT_UNDERSTOOD if is_unfinished else UNDERSTOOD
            self._update()

    def _update(self) -> None:
        if self._pause is not None:
            known = combine_probabilities(self._by_sound, self._by_words, self._by_command)
            self._set_delay(known, self._pause)
