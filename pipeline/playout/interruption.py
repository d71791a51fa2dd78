"""Speech over an answer: an interruption, or somebody who shows that he listens? Pure."""

import re
import tomllib
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from importlib.resources import files
from typing import Literal

from pipeline.user_turn.turn_detection import OPEN, completeness

DECIDE_MS = 500
"From the pause of the answer to its end or its going on: longer sounds like a broken line."
MAX_BACKCHANNEL_WORDS = 3
PATIENT_WORDS = 2
"What `patient` takes for an interruption, but for a single word that means stop."

_PUNCTUATION = re.compile(r"[^\w\s'-]|_")


class InterruptionVerdict(Enum):
    WAIT = auto()
    RESUME = auto()
    "Noise or a backchannel: the answer goes on where it stopped."
    CANCEL = auto()
    "An interruption: the answer is over."


@dataclass(frozen=True, slots=True)
class OverlappingSpeech:
    """What is known of the speech over an answer."""

    words: str
    "As far as they are known."
    is_late: bool
    "The answer was paused for `DECIDE_MS`: it must go on or end."
    is_silent: bool
    "It has stopped, maybe for good."
    is_wordless: bool
    "The recogniser listened, and found no words so far."
    is_final: bool
    "`words` are all there are."
    is_brief: bool = False
    "It stopped before the answer had to go on or end: as long as an `uh-huh`."
    makes_sense: bool | None = None
    "Something would come of the words, were they all; None: nobody knows yet."
    is_joined: bool = False
    "It goes on a sentence: what is new in it is none by itself."


def judge_overlap(
    overlap: OverlappingSpeech,
    policy: Literal["on", "patient"],
    language: str,
    *,
    is_question: bool,
) -> InterruptionVerdict:
    """`is_question`: the answer has asked something, so that a `yes` means something."""
    if not overlap.words or is_backchannel(overlap.words, language, is_question=is_question):
        return _of_nothing(overlap, policy)
    is_reply = is_question and overlap.is_final  # one word is enough for that
    if is_reply or _says_stop(overlap.words):
        return InterruptionVerdict.CANCEL
    is_enough = policy == "on" or _count(_normal(overlap.words)) >= PATIENT_WORDS
    if overlap.is_final:
        is_meant = not (overlap.is_brief and overlap.makes_sense is False)
        return InterruptionVerdict.CANCEL if is_enough and is_meant else InterruptionVerdict.RESUME
    if not overlap.is_late:  # the answer is silent meanwhile: to hear more costs nothing
        is_clear = overlap.is_joined or bool(overlap.is_brief and overlap.makes_sense)
        return InterruptionVerdict.CANCEL if is_enough and is_clear else InterruptionVerdict.WAIT
    # A single word may be a `stop` that was misheard; more of them are told from an `uh-huh`.
    is_several = _count(_normal(overlap.words)) > 1
    is_nothing = overlap.makes_sense is False or is_beginning(overlap.words, language)
    is_meant = not (overlap.is_brief and is_several and is_nothing)
    return InterruptionVerdict.CANCEL if is_enough and is_meant else InterruptionVerdict.RESUME


def is_beginning(words: str, language: str) -> bool:
    """`are the`: what recognisers of commands make of an `uh-huh`. Nobody stops there."""
    how = completeness(words, language)
    return how is not None and how <= OPEN


def _of_nothing(
    overlap: OverlappingSpeech, policy: Literal["on", "patient"]
) -> InterruptionVerdict:
    """No words so far, or a backchannel."""
    if overlap.is_final:
        return InterruptionVerdict.RESUME
    if not overlap.is_late:
        return InterruptionVerdict.WAIT
    # Speech that goes on for so long, its words still unknown, is no `uh-huh`, and no door.
    is_unclear = not (overlap.words or overlap.is_silent or overlap.is_wordless)
    return (
        InterruptionVerdict.CANCEL if policy == "on" and is_unclear else InterruptionVerdict.RESUME
    )


def is_backchannel(words: str, language: str, *, is_question: bool = False) -> bool:
    """`uh-huh`, `okay okay`: nothing in it asks for an answer. Empty words are one."""
    said = _normal(words)
    if not said:
        return True
    known, affirmations = _words_of(language)
    if not is_question:
        known = known | affirmations
    return said in known or (
        _count(said) <= MAX_BACKCHANNEL_WORDS and all(word in known for word in said.split())
    )


def _says_stop(words: str) -> bool:
    return any(word in _stop_words() for word in _normal(words).split())


def _count(words: str) -> int:
    return len(words.split())


def _normal(words: str) -> str:
    return " ".join(_PUNCTUATION.sub(" ", words.lower()).split())


@cache
def _words_of(language: str) -> tuple[frozenset[str], frozenset[str]]:
    table = _table()
    entry = table.get(language) or {}
    return frozenset(entry.get("backchannels", ())), frozenset(entry.get("affirmations", ()))


@cache
def _stop_words() -> frozenset[str]:
    """Of every language: who shouts `stop` may speak another one."""
    return frozenset(word for entry in _table().values() for word in entry.get("stop", ()))


@cache
def _table() -> dict[str, dict[str, list[str]]]:
    text = (files(__package__) / "interruption.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
