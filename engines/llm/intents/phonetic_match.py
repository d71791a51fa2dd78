"""Names that were misheard: the one that sounds nearest to some words, if it is near enough.

Made for what recognisers write: "kitchen lice" for kitchen lights, "bad room" for bedroom. Near is
measured over letters that stand for sounds; vowels count half, for they are what is misheard most.
What is a good word itself, like that of a room which this house does not have, was not misheard.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache

MAX_WORDS = 10
"Of a sentence that is looked at; commands are shorter."

MIN_SOUNDS = 4
"A shorter name is near to everything."

NEAR = 0.3
"Distance over length at and below which a name may be meant."

NEAR_REST = 0.34
'The same without the words that both have: "light" makes no kitchen light a garden light.'

CLEARLY = 0.1
"By which it must be nearer than any other name."

LOOKED_AT = 4
"Names per run of words that are compared letter by letter: those that share most pairs of sounds."

SHARED = 0.3
"Of the pairs of sounds that two have together; with fewer in common they cannot be near."

MAX_REPAIRS = 3
"Sentences that are tried, nearest first."

_SOUNDS = tuple(
    (re.compile(pattern), sound)
    for pattern, sound in (
        ("ght|gh(?=t)", "t"),
        ("tsch|sch|sh|ch|tch|[cs](?=h)", "x"),
        ("ph|v|w", "f"),
        ("qu|ck|q|k|c(?![eiy])|g", "k"),
        ("c(?=[eiy])|z|ß|ss", "s"),
        ("th|d|tt", "t"),
        ("b|pp", "p"),
        ("[iy](?=[aeou])|j", "j"),
        ("h", ""),
        ("ee|ea|ie|y", "i"),
        ("oo|ou|u", "u"),
        ("ai|ay|ei|ey|e", "e"),
        ("[^a-z]", ""),
    )
)
_VOWELS = frozenset("aeiou")


class PhoneticMatcher:
    """Names to be found again. Immutable. `guarded`: names that are never put in place of what was
    said, though it may be them that were meant. `kept`: words that are not replaced by a name
    without them; with a `*` at its end, all that begin so."""

    def __init__(
        self, names: Sequence[str], *, guarded: Sequence[str] = (), kept: Sequence[str] = ()
    ) -> None:
        self._guarded = {" ".join(name.lower().split()) for name in guarded}
        self._kept = {word for word in kept if not word.endswith("*")}
        self._beginnings = tuple(word[:-1] for word in kept if word.endswith("*"))
        names = [*names, *guarded]
        spelled = dict.fromkeys(" ".join(name.lower().split()) for name in names)
        self._names = [
            (name, key) for name in spelled if len(key := phonetic_key(name)) >= MIN_SOUNDS
        ]
        self._pairs: dict[str, list[int]] = defaultdict(list)
        for index, (_, key) in enumerate(self._names):
            for pair in _pairs(key):
                self._pairs[pair].append(index)
        self._longest = max((len(name.split()) for name, _ in self._names), default=0)

    def repaired(self, text: str) -> list[str]:
        """The sentence with one run of its words replaced by the name that they sound like; the
        likeliest first, at most MAX_REPAIRS."""
        words = text.lower().split()
        if not self._names or not 2 <= len(words) <= MAX_WORDS:
            return []
        found: dict[str, float] = {}
        for start, end in self._runs(len(words)):
            run = " ".join(words[start:end])
            nearest = self._nearest(phonetic_key(run))
            if nearest is not None and nearest[0] != run and self._may_be(run, nearest[0]):
                name, distance = nearest
                sentence = " ".join([*words[:start], name, *words[end:]])
                found[sentence] = min(distance, found.get(sentence, 1.0))
        return sorted(found, key=lambda sentence: found[sentence])[:MAX_REPAIRS]

    def _runs(self, words: int) -> Iterator[tuple[int, int]]:
        """A name may have fallen apart into one word more, or the first word be the verb's."""
        for start in range(1, words):
            for end in range(start + 1, min(words, start + self._longest + 1) + 1):
                yield start, end

    def _may_be(self, run: str, name: str) -> bool:
        """Whether nothing of the words that were heard says that the name was not meant."""
        if name in self._guarded:
            return False
        said, named = run.split(), name.split()
        if _numbers(said) != _numbers(named) or any(self._says_more(one, named) for one in said):
            return False
        while said and named and said[0] == named[0]:
            del said[0], named[0]
        while said and named and said[-1] == named[-1]:
            del said[-1], named[-1]
        one, other = phonetic_key("".join(said)), phonetic_key("".join(named))
        return phonetic_distance(one, other) <= NEAR_REST * max(len(one), len(other))

    def _says_more(self, word: str, named: Sequence[str]) -> bool:
        """It is a good word, which the name does not have."""
        if word in self._kept:
            return word not in "".join(named)  # a name may be heard in two words
        beginnings = [one for one in self._beginnings if word.startswith(one)]
        return any(not any(one.startswith(begin) for one in named) for begin in beginnings)

    def _nearest(self, key: str) -> tuple[str, float] | None:
        """The one name that is near, with how near it is."""
        if len(key) < MIN_SOUNDS:
            return None
        pairs = _pairs(key)
        shared = Counter(index for pair in pairs for index in self._pairs.get(pair, ()))
        near: list[tuple[float, str]] = []
        for index, common in shared.most_common(LOOKED_AT):
            name, other = self._names[index]
            if common >= SHARED * (len(pairs) + len(other) + 1 - common):
                near.append((phonetic_distance(key, other) / max(len(key), len(other)), name))
        near.sort()
        if not near or near[0][0] > NEAR:
            return None
        if len(near) > 1 and near[1][0] - near[0][0] < CLEARLY:
            return None  # it could be either: asking again is better than the wrong lamp
        return near[0][1], near[0][0]


@lru_cache(maxsize=8192)  # the names of a few homes, and the words around them
def phonetic_key(text: str) -> str:
    """Roughly how a text sounds, one letter for each sound, in any of the western languages."""
    plain = unicodedata.normalize("NFKD", text.lower())
    key = re.sub(r"[^a-zß]", "", "".join(c for c in plain if not unicodedata.combining(c)))
    for pattern, sound in _SOUNDS:
        key = pattern.sub(sound, key)
    return re.sub(r"(.)\1+", r"\1", key)


def phonetic_distance(one: str, other: str) -> float:
    """Levenshtein's, with half the price for vowels."""
    row = [0.0]
    for letter in other:
        row.append(row[-1] + _price(letter))
    for a in one:
        above, row = row, [row[0] + _price(a)]
        for column, b in enumerate(other):
            both_vowels = a in _VOWELS and b in _VOWELS
            swap = 0.0 if a == b else 0.5 if both_vowels else 1.0
            row.append(
                min(above[column] + swap, above[column + 1] + _price(a), row[column] + _price(b))
            )
    return row[-1]


def _numbers(words: Sequence[str]) -> list[str]:
    """Digits have no sound here."""
    return [word for word in words if any(letter.isdigit() for letter in word)]


def _price(letter: str) -> float:
    return 0.5 if letter in _VOWELS else 1.0


def _pairs(key: str) -> set[str]:
    padded = f"^{key}$"
    return {padded[at : at + 2] for at in range(len(padded) - 1)}
