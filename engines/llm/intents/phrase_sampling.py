"""Example sentences for training a recogniser's language model: lower case, no punctuation."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import cycle, islice

from engines.llm.intents.home_names import HomeNames
from engines.llm.intents.language import LanguageData, language_data
from engines.llm.intents.spoken_numbers import in_words

MAX_PHRASES = 200_000  # more sentences would only repeat the same words and pairs of words
NUMBERS = range(1, 101)
DEGREES = range(1, 31)
PLACEHOLDER = re.compile(r"\{(\w+)\}")


@lru_cache(maxsize=8)  # languages times homes; a list of a few thousand short texts
def sample_phrases(language: str, names: HomeNames, limit: int) -> tuple[str, ...]:
    """Returns at most `limit` sentences, in proportion to the weight of their group. Deterministic.

    Every value of a placeholder (`{area}`) is used before one is used again. The order of the
    values differs between placeholders, so that combinations vary.

    language: ISO 639-1 code. names: fill `{area}` and the placeholders for devices.
    """
    words = language_data(language)
    if not words.phrases:
        return ()
    fill = _fill(language, names, words)
    weights = [group.weight / len(group.say) for group in words.phrases for _ in group.say]
    patterns = [pattern for group in words.phrases for pattern in group.say]
    total = sum(weights) or 1
    count = min(limit, MAX_PHRASES)
    phrases: list[str] = []
    for pattern, weight in zip(patterns, weights, strict=True):
        phrases += _fill_pattern(pattern, fill, max(1, round(count * weight / total)))
    return tuple(islice(phrases, count))


def _fill_pattern(pattern: str, fill: dict[str, Sequence[str]], count: int) -> list[str]:
    placeholders = PLACEHOLDER.findall(pattern)
    values = [fill.get(placeholder, ()) for placeholder in placeholders]
    if not all(values):  # the home has no such device
        return []
    columns = [_column(choices, count, step) for step, choices in enumerate(values)]
    phrases = []
    for row in range(count):
        text = pattern
        for placeholder, column in zip(placeholders, columns, strict=True):
            text = text.replace(f"{{{placeholder}}}", column[row], 1)
        phrases.append(_clean(text))
    return phrases


def _column(choices: Sequence[str], count: int, step: int) -> list[str]:
    """Returns `count` choices in turn. Each full round begins `step` choices later."""
    column: list[str] = []
    start = 0
    while len(column) < count:
        column += [*choices[start:], *choices[:start]]
        start = (start + step) % len(choices)
    return list(islice(cycle(column), count))


def _clean(text: str) -> str:
    return " ".join(re.sub(r"[^\w' ]+", " ", text.lower()).split())


def _fill(language: str, names: HomeNames, words: LanguageData) -> dict[str, Sequence[str]]:
    numbers = [in_words(number, language) for number in NUMBERS]
    switchable = _device_names(names, "light", "switch", "fan", "climate", "media_player")
    half = len(switchable) // 2
    return {
        **words.fill,
        "area": names.areas,
        "switchable": switchable,
        "switchable2": [*switchable[half:], *switchable[:half]],
        "dimmable_light": _device_names(names, "light"),
        "coverable": _device_names(names, "cover"),
        "number": numbers,
        "number2": [*numbers[37:], *numbers[:37]],
        "degrees": [in_words(number, language) for number in DEGREES],
        "duration": _durations(language, words),
    }


def _device_names(names: HomeNames, *domains: str) -> Sequence[str]:
    return tuple(dict.fromkeys(name for domain, name in names.devices if domain in domains))


def _durations(language: str, words: LanguageData) -> list[str]:
    """Returns the numbers 1 to 60 with each unit. Frequent numbers come several times."""
    phrases = []
    for number in (*range(1, 61), 5, 10, 15, 20, 30, 45, 10, 5, 1, 2, 3):
        for unit in ("second", "minute", "hour"):
            singular, plural = words.units[unit]
            if number == 1:
                phrases.append(
                    words.singular_units.get(unit, f"{in_words(1, language)} {singular}")
                )
            else:
                phrases.append(f"{in_words(number, language)} {plural}")
    return phrases
