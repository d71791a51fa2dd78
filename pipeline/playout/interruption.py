"""Judges speech over an answer: is it an interruption or a backchannel? Pure."""

import re
import tomllib
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from importlib.resources import files

from pipeline.shared.settings import InterruptingSpeech
from pipeline.user_turn.turn_detection import OPEN, completeness

DECIDE_MS = 500
"Longest pause of the answer until it resumes or ends: longer sounds like a broken connection."
MAX_BACKCHANNEL_WORDS = 3
"""Longest backchannel that is made of several known words ("okay okay")."""
PATIENT_WORDS = 2
"Least words that interrupt under the policy `patient`, except a single word that means stop."

LONGEST_STOP_PHRASE = 4
"Longest phrase in the lists `stop_phrases` and `stop_fillers`, in words."

_PUNCTUATION = re.compile(r"[^\w\s'-]|_")


class InterruptionVerdict(Enum):
    """Decision about the paused answer."""

    WAIT = auto()
    "Not decided: the answer stays paused."
    RESUME = auto()
    "Noise or a backchannel: the answer resumes where it paused."
    CANCEL = auto()
    "An interruption: the answer is over."


@dataclass(frozen=True, slots=True)
class OverlappingSpeech:
    """State of the user's speech over an answer, as far as it is known."""

    words: str
    "Words so far."
    is_late: bool
    "True if the answer has been paused for `DECIDE_MS`, so it must resume or end."
    is_silent: bool
    "True if the speech has stopped, maybe for good."
    is_wordless: bool
    "True if the recogniser decoded the speech and found no words so far."
    is_final: bool
    "True if `words` are final."
    is_brief: bool = False
    "True if the speech stopped before the answer had to resume or end: as short as an `uh-huh`."
    makes_sense: bool | None = None
    "True if the assistant would act on the words if they are final; None: not known yet."
    is_joined: bool = False
    "True if it continues an earlier utterance, so that `words` alone need not be a sentence."


def judge_overlap(
    overlap: OverlappingSpeech,
    policy: InterruptingSpeech,
    language: str,
    *,
    is_question: bool,
) -> InterruptionVerdict:
    """Returns what becomes of the answer. `language`: ISO 639-1, of the words. `is_question`: the
    answer asked something, so that a `yes` is a reply."""
    if policy == "wake_word":
        return _unless_stop(overlap, language)
    if not overlap.words or is_backchannel(overlap.words, language, is_question=is_question):
        return _without_words(overlap, policy)
    is_reply = is_question and overlap.is_final  # one word is enough for a reply
    if is_reply or _says_stop(overlap.words):
        return InterruptionVerdict.CANCEL
    is_enough = policy == "on" or _count(_normal(overlap.words)) >= PATIENT_WORDS
    if overlap.is_final:
        is_intended = not (overlap.is_brief and overlap.makes_sense is False)
        return (
            InterruptionVerdict.CANCEL if is_enough and is_intended else InterruptionVerdict.RESUME
        )
    # the answer is silent meanwhile, so waiting for more words costs nothing
    if not overlap.is_late:
        is_clear = overlap.is_joined or bool(overlap.is_brief and overlap.makes_sense)
        return InterruptionVerdict.CANCEL if is_enough and is_clear else InterruptionVerdict.WAIT
    # A single word may be a misrecognised `stop`. Several words can be distinguished from an
    # `uh-huh`.
    is_several = _count(_normal(overlap.words)) > 1
    is_nothing = overlap.makes_sense is False or is_beginning(overlap.words, language)
    is_intended = not (overlap.is_brief and is_several and is_nothing)
    return InterruptionVerdict.CANCEL if is_enough and is_intended else InterruptionVerdict.RESUME


def is_beginning(words: str, language: str) -> bool:
    """Returns whether the words are only the beginning of a sentence, such as `are the`.
    Recognisers of commands write such words for an `uh-huh`. No user ends a sentence there."""
    probability = completeness(words, language)
    return probability is not None and probability <= OPEN


def _unless_stop(overlap: OverlappingSpeech, language: str) -> InterruptionVerdict:
    """Returns the verdict under the policy `wake_word`. Words are judged where the speech pauses:
    before that, `stop` may be the beginning of another sentence."""
    if (overlap.is_silent or overlap.is_final) and says_only_stop(overlap.words, language):
        return InterruptionVerdict.CANCEL
    return InterruptionVerdict.RESUME


def _without_words(overlap: OverlappingSpeech, policy: InterruptingSpeech) -> InterruptionVerdict:
    """Returns the verdict for no words so far, or for a backchannel."""
    if overlap.is_final:
        return InterruptionVerdict.RESUME
    if not overlap.is_late:
        return InterruptionVerdict.WAIT
    # Speech that lasts this long without known words is neither an `uh-huh` nor a slamming door.
    is_unclear = not (overlap.words or overlap.is_silent or overlap.is_wordless)
    return (
        InterruptionVerdict.CANCEL if policy == "on" and is_unclear else InterruptionVerdict.RESUME
    )


def is_backchannel(words: str, language: str, *, is_question: bool = False) -> bool:
    """Returns whether nothing in the words asks for an answer, as in `uh-huh` or `okay okay`. True
    for empty words. After a question, affirmations such as `yes` do not count."""
    normal_words = _normal(words)
    if not normal_words:
        return True
    known, affirmations = _words_of(language)
    if not is_question:
        known = known | affirmations
    return normal_words in known or (
        _count(normal_words) <= MAX_BACKCHANNEL_WORDS
        and all(word in known for word in normal_words.split())
    )


def says_only_stop(words: str, language: str) -> bool:
    """Returns whether the words say nothing but stop, as `okay, stop please` does. Words that say
    more, as `stop the music` does, are an order of their own."""
    entry = _table().get(language) or {}
    if "stop_phrases" not in entry:
        entry = _table()["en"]
    phrases, fillers = frozenset(entry["stop_phrases"]), frozenset(entry["stop_fillers"])
    rest, has_stop = _normal(words).split(), False
    while rest:
        lengths = range(min(LONGEST_STOP_PHRASE, len(rest)), 0, -1)
        starts = {" ".join(rest[:length]): length for length in lengths}
        found = next((start for start in starts if start in phrases or start in fillers), None)
        if found is None:
            return False
        has_stop = has_stop or found in phrases
        rest = rest[starts[found] :]
    return has_stop


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
    """Returns the stop words of all languages: a user may shout `stop` in another language."""
    return frozenset(word for entry in _table().values() for word in entry.get("stop", ()))


@cache
def _table() -> dict[str, dict[str, list[str]]]:
    text = (files(__package__) / "interruption.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
