"""Example sentences to train a recogniser's language model: lower case, without punctuation."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import cycle, islice

from engines.llm.intents.home_names import HomeNames
from engines.llm.intents.language import LanguageData, language_data
from engines.llm.intents.spoken_numbers import in_words

MAX_PHRASES = 200_000  # a language model learns nothing new from more
NUMBERS = range(1, 101)
DEGREES = range(1, 31)
PLACEHOLDER = re.compile(r"\{(\w+)\}")


@lru_cache(maxsize=8)  # languages times homes; a list of a few thousand short texts
def sample_phrases(language: str, names: HomeNames, limit: int) -> tuple[str, ...]:
    """Returns at most `limit` sentences, each kind in proportion to its weight. Deterministic.

    Every value of a hole (`{area}`) is used before one is used again. Holes advance at different
    paces, so that combinations vary.
    """
    words = language_data(language)
    if not words.phrases:
        return ()
    fill = _fill(language, names, words)
    weights = [group.weight / len(group.say) for group in words.phrases for _ in group.say]
    patterns = [pattern for group in words.phrases for pattern in group.say]
    total = sum(weights) or 1
    wanted = min(limit, MAX_PHRASES)
    phrases: list[str] = []
    for pattern, weight in zip(patterns, weights, strict=True):
        phrases += _spoken(pattern, fill, max(1, round(wanted * weight / total)))
    return tuple(islice(phrases, wanted))


def _spoken(pattern: str, fill: dict[str, Sequence[str]], count: int) -> list[str]:
    holes = PLACEHOLDER.findall(pattern)
    values = [fill.get(hole, ()) for hole in holes]
    if not all(values):
        return []
    columns = [_cycled(choices, count, step) for step, choices in enumerate(values)]
    phrases = []
    for row in range(count):
        text = pattern
        for hole, column in zip(holes, columns, strict=True):
            text = text.replace(f"{{{hole}}}", column[row], 1)
        phrases.append(_clean(text))
    return phrases


def _cycled(choices: Sequence[str], count: int, step: int) -> list[str]:
    """Returns `count` of the choices in turn; each full round starts `step` choices later."""
    found: list[str] = []
    start = 0
    while len(found) < count:
        found += [*choices[start:], *choices[:start]]
        start = (start + step) % len(choices)
    return list(islice(cycle(found), count))


def _clean(text: str) -> str:
    return " ".join(re.sub(r"[^\w' ]+", " ", text.lower()).split())


def _fill(language: str, names: HomeNames, words: LanguageData) -> dict[str, Sequence[str]]:
    numbers = [in_words(number, language) for number in NUMBERS]
    switchable = _named(names, "light", "switch", "fan", "climate", "media_player")
    half = len(switchable) // 2
    return {
        **words.fill,
        "area": names.areas,
        "switchable": switchable,
        "switchable2": [*switchable[half:], *switchable[:half]],
        "dimmable_light": _named(names, "light"),
        "coverable": _named(names, "cover"),
        "number": numbers,
        "number2": [*numbers[37:], *numbers[:37]],
        "degrees": [in_words(number, language) for number in DEGREES],
        "duration": _durations(language, words),
    }


def _named(names: HomeNames, *domains: str) -> Sequence[str]:
    return tuple(dict.fromkeys(name for domain, name in names.devices if domain in domains))


def _durations(language: str, words: LanguageData) -> list[str]:
    """Returns the numbers 1 to 60 with each unit, in its gender; common numbers come more often."""
    phrases = []
    for number in (*range(1, 61), 5, 10, 15, 20, 30, 45, 10, 5, 1, 2, 3):
        for unit in ("second", "minute", "hour"):
            singular, plural = words.units[unit]
            if number == 1:
                phrases.append(words.one.get(unit, f"{in_words(1, language)} {singular}"))
            else:
                phrases.append(f"{in_words(number, language)} {plural}")
    return phrases
