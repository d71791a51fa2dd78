"""Corrects misheard names: finds the name that sounds most like some words of a sentence.

Recognisers write "kitchen lice" for kitchen lights, "bad room" for bedroom. Texts are converted to
keys with one letter for each sound, and the distance of two keys is counted in letters. Vowels
count half, because they are misheard most often. A word that makes sense itself, such as a room
that this home does not have, is not replaced.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache

MAX_WORDS = 10
"Longest sentence that is examined, in words; commands are shorter."

MIN_SOUNDS = 4
"Shortest name that is compared, in sounds. Shorter names are similar to too many words."

MAX_DISTANCE = 0.3
"Largest distance at which a name may be meant, as a share of the longer key's length."

MAX_REST_DISTANCE = 0.34
'The same limit after removing equal words: "kitchen light" does not mean the garden light.'

MIN_MARGIN = 0.1
"Least difference between the relative distances of the nearest name and the next one."

MAX_CANDIDATES = 4
"Most names that are compared in full with some words: those with most pairs of sounds in common."

MIN_SHARED_PAIRS = 0.3
"Least share of common pairs of sounds (Jaccard index). With fewer, two keys cannot be near."

MAX_REPAIRS = 3
"Most corrected sentences that are returned for one sentence."

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
    """Finds the names of one home in misheard sentences. Immutable.

    names: names that may replace words of a sentence.
    guarded: names that never replace words; words that are nearest to one of them stay unchanged.
    protected_words: words that are only replaced by a name that contains them; `x*` stands for all
        words that begin with x.
    """

    def __init__(
        self,
        names: Sequence[str],
        *,
        guarded: Sequence[str] = (),
        protected_words: Sequence[str] = (),
    ) -> None:
        self._guarded = {" ".join(name.lower().split()) for name in guarded}
        self._protected = {word for word in protected_words if not word.endswith("*")}
        self._protected_prefixes = tuple(
            word[:-1] for word in protected_words if word.endswith("*")
        )
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
        parts = {part for name in spelled for part in (name.replace(" ", ""), *name.split())}
        self._name_parts = {key for part in parts if len(key := phonetic_key(part)) >= MIN_SOUNDS}

    def corrections(self, text: str) -> list[str]:
        """Returns the sentence with some adjacent words replaced by the name that they sound like.

        There may be several variants, at most MAX_REPAIRS; the most likely one is first.
        """
        words = text.lower().split()
        if not self._names or not 2 <= len(words) <= MAX_WORDS:
            return []
        found: dict[str, float] = {}
        for start, end in self._runs(len(words)):
            run = " ".join(words[start:end])
            nearest = self._nearest(phonetic_key(run))
            if nearest is not None and nearest[0] != run and self._is_plausible(run, nearest[0]):
                name, distance = nearest
                sentence = " ".join([*words[:start], name, *words[end:]])
                found[sentence] = min(distance, found.get(sentence, 1.0))
        return sorted(found, key=lambda sentence: found[sentence])[:MAX_REPAIRS]

    def is_like_name(self, word: str) -> bool:
        """Returns True if the word sounds like a name, or like a word of a name."""
        key = phonetic_key(word)
        return any(
            phonetic_distance(key, part) <= MAX_DISTANCE * max(len(key), len(part))
            for part in self._name_parts
        )

    def _runs(self, words: int) -> Iterator[tuple[int, int]]:
        """Yields (start, end) of all runs of adjacent words that may be a name.

        words: length of the sentence. A run may have one word more than the longest name, because a
        recogniser may split a word. It never begins with the first word, which is the verb.
        """
        for start in range(1, words):
            for end in range(start + 1, min(words, start + self._longest + 1) + 1):
                yield start, end

    def _is_plausible(self, run: str, name: str) -> bool:
        """Returns False if one of the recognised words shows that `name` was not meant."""
        if name in self._guarded:
            return False
        said, named = run.split(), name.split()
        if _numbers(said) != _numbers(named) or any(
            self._names_something_else(word, named) for word in said
        ):
            return False
        while said and named and said[0] == named[0]:
            del said[0], named[0]
        while said and named and said[-1] == named[-1]:
            del said[-1], named[-1]
        said_key, name_key = phonetic_key("".join(said)), phonetic_key("".join(named))
        limit = MAX_REST_DISTANCE * max(len(said_key), len(name_key))
        return phonetic_distance(said_key, name_key) <= limit

    def _names_something_else(self, word: str, named: Sequence[str]) -> bool:
        """Returns True for a protected word that the name does not contain."""
        if word in self._protected:
            return word not in "".join(named)  # one word may be recognised as two
        beginnings = [prefix for prefix in self._protected_prefixes if word.startswith(prefix)]
        return any(not any(part.startswith(begin) for part in named) for begin in beginnings)

    def _nearest(self, key: str) -> tuple[str, float] | None:
        """Returns the nearest name and its relative distance; None if none is clearly near."""
        if len(key) < MIN_SOUNDS:
            return None
        pairs = _pairs(key)
        shared = Counter(index for pair in pairs for index in self._pairs.get(pair, ()))
        near: list[tuple[float, str]] = []
        for index, common in shared.most_common(MAX_CANDIDATES):
            name, other = self._names[index]
            if common >= MIN_SHARED_PAIRS * (len(pairs) + len(other) + 1 - common):
                near.append((phonetic_distance(key, other) / max(len(key), len(other)), name))
        near.sort()
        if not near or near[0][0] > MAX_DISTANCE:
            return None
        if len(near) > 1 and near[1][0] - near[0][0] < MIN_MARGIN:
            return None  # not understood is better than the wrong lamp
        return near[0][1], near[0][0]


@lru_cache(maxsize=8192)  # the names of a few homes, and the words around them
def phonetic_key(text: str) -> str:
    """Returns the sound of a text in western languages, roughly: one letter for each sound."""
    plain = unicodedata.normalize("NFKD", text.lower())
    key = re.sub(r"[^a-zß]", "", "".join(c for c in plain if not unicodedata.combining(c)))
    for pattern, sound in _SOUNDS:
        key = pattern.sub(sound, key)
    return re.sub(r"(.)\1+", r"\1", key)


def phonetic_distance(key: str, other: str) -> float:
    """Returns the Levenshtein distance of two keys. A vowel costs 0.5, another letter 1."""
    row = [0.0]
    for letter in other:
        row.append(row[-1] + _cost(letter))
    for a in key:
        above, row = row, [row[0] + _cost(a)]
        for column, b in enumerate(other):
            both_vowels = a in _VOWELS and b in _VOWELS
            swap = 0.0 if a == b else 0.5 if both_vowels else 1.0
            row.append(
                min(above[column] + swap, above[column + 1] + _cost(a), row[column] + _cost(b))
            )
    return row[-1]


def _numbers(words: Sequence[str]) -> list[str]:
    """Returns the words with digits. Keys ignore digits, so these words must be equal."""
    return [word for word in words if any(letter.isdigit() for letter in word)]


def _cost(letter: str) -> float:
    return 0.5 if letter in _VOWELS else 1.0


def _pairs(key: str) -> set[str]:
    padded = f"^{key}$"
    return {padded[at : at + 2] for at in range(len(padded) - 1)}
