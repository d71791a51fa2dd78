"""Splits text into clauses while it is generated, the first one as early as possible. Pure.

Characters are taken one by one, so that the clauses do not depend on how the text came in.
"""

import re
import unicodedata

SENTENCE_ENDS = ".!?…"
CLAUSE_ENDS = ",;:—–"
"""Characters that end a clause only before a space: `3.5`, `1,000`, `10:30` and addresses stay
whole."""

WIDE_SENTENCE_ENDS = "。！？｡"
WIDE_CLAUSE_ENDS = "，、；："
"Characters of Chinese and Japanese that end a clause without a space behind them."

CLOSERS = "\"'”’“»«)]}*_`~）」』】》〉"
"Quotes, brackets and markdown that belong to the clause whose end they follow."

MIN_FIRST_CHARS = 12
"""Least characters of the first clause. A shorter one (`Yes,`) is spoken with the next: alone it
sounds cut off."""
MIN_CLAUSE_CHARS = 60
"""Least characters of a later clause that ends at a comma. Whole sentences sound better, so only a
long one is broken."""
MAX_FIRST_CHARS = 100
"Most characters of a first clause without punctuation: 25 tokens, half a second of most models."
MAX_CHARS = 240
"Most characters of a later clause. A voice must not wait for a model that writes no full stop."
MAX_BRACKET_CHARS = 120
"Most characters of a bracket or code span. One that is open for longer was never meant as one."

WIDE_WEIGHT = 3
"Letters that one Chinese character counts as: it says about as much."

DOTTED_ORDINALS = frozenset(
    "cs da de et fi hr hu is lb lv nb nn no pl sk sl sr tr".split()  # noqa: SIM905
)
"""Languages that write `3.` for "third"."""

BEFORE_NUMBERS = frozenset(
    "no nr nos núm num fig vol p pp s bd art kap cap ch sec § n".split()  # noqa: SIM905
)
"Words before a number: `No. 5` is not an end of a sentence, `No. It is not.` is."

ABBREVIATIONS = frozenset(
    """
    mr mrs ms dr prof sr jr st vs etc inc ltd co corp approx dept est ave blvd rd gen col sgt capt
    lt rev hon gov sen rep ed eds al min max hrs tel ext mt ft jan feb mar apr jun jul aug sep sept
    oct nov dec bzw ca usw vgl evtl ggf inkl exkl zzgl bspw sog str hr fr abs aufl hrsg jh jhd mio
    mrd mind resp ing dipl mme mlle mm env av boul sra srta dña ud uds avda pág aprox dra gral ee uu
    """.split()  # noqa: SIM905 - a list of hundred strings is not read
)
"Words after which a full stop ends nothing. One-letter ones (`z. B.`, `J. R. R.`) need no entry."

_LAST_TOKEN = re.compile(r"\S+$")
_DOTTED = re.compile(r"^(?:\w{1,2}\.)+\w{1,2}$")  # e.g, a.m, U.S.A, z.B
_LEADING = re.compile(r"^\W+")
_ROMAN = re.compile(r"^[IVX]+$")
_OPENERS = "\"'“‘«»„¿¡([{*_`~"


class ClauseChunker:
    """Splits text into clauses. Joined, the clauses are the text except for its white space.

    chunker = ClauseChunker("en")
    chunker.push("The light is on. Shall ")  # ["The light is on."]
    chunker.flush()                          # "Shall"
    """

    def __init__(self, language: str = "") -> None:
        """Takes the language (ISO 639-1): it decides what a full stop after a number means.

        "": not known.
        """
        self._text = ""
        self._is_first = True
        self._has_ordinals = not language or language in DOTTED_ORDINALS

    def push(self, delta: str) -> list[str]:
        """Returns the clauses that `delta` completes."""
        clauses = []
        for char in delta:
            if self._text or not char.isspace():
                self._text += char
                if (end := self._find_end(char)) and (clause := self._text[:end].strip()):
                    clauses.append(clause)
                    self._text = self._text[end:].lstrip()
                    self._is_first = False
        return clauses

    def flush(self) -> str | None:
        """Returns the rest of the text at its end, or None."""
        rest, self._text = self._text.strip(), ""
        return rest or None

    def _find_end(self, char: str) -> int:
        """Returns the length of the clause that `char` completes. 0: it is not complete."""
        before = self._text[:-1]
        if char == "\n":
            return len(self._text) if _has_words(before) else 0
        if char.isspace():
            is_end = self._ends(before)
        elif before[-1:].isspace():
            is_end = self._was_word(before.rstrip(), char)
        else:
            is_end = self._ends_wide(before, char)
        return len(before) if is_end else self._forced()

    def _ends(self, text: str) -> bool:
        """Returns whether `text`, followed by a space, is a clause."""
        bare = text.rstrip(CLOSERS)
        last = bare[-1:]
        if last and last in SENTENCE_ENDS:
            is_end = last != "." or bare.endswith("..") or not self._goes_on(bare)
            return is_end and _has_words(bare) and not _is_open(text, "[`")
        return bool(last) and last in CLAUSE_ENDS and self._is_long(bare) and not _is_open(text)

    def _ends_wide(self, before: str, char: str) -> bool:
        """Returns whether `before` is a clause that ends without a space, followed by `char`."""
        bare = before.rstrip(CLOSERS)
        last = bare[-1:]
        if not last or char in CLOSERS + WIDE_SENTENCE_ENDS + WIDE_CLAUSE_ENDS:
            return False
        if last in WIDE_SENTENCE_ENDS:
            return _has_words(bare)
        return last in WIDE_CLAUSE_ENDS and not char.isdigit() and self._is_long(bare)

    def _was_word(self, text: str, char: str) -> bool:
        """Returns whether `text` is a sentence that ends with a word like `No.`.

        `char` comes after the space: a digit means that it is `No. 5`.
        """
        bare = text.rstrip(CLOSERS)
        if not bare.endswith(".") or _token(bare) not in BEFORE_NUMBERS:
            return False
        return len(_token(bare)) > 1 and not char.isdigit() and not _is_open(text, "[`")

    def _goes_on(self, text: str) -> bool:
        """Returns whether the full stop at the end belongs to a word or a number."""
        token = _token(text, lower=False)
        word = token.lower()
        if token.isdigit():
            is_list_item = _LEADING.sub("", text)[:-1] == token
            return is_list_item or (self._has_ordinals and len(token) <= 2)
        if self._has_ordinals and _ROMAN.match(token):
            return True
        return (
            (len(token) == 1 and token.isalpha() and not _is_wide(token))
            or word in ABBREVIATIONS
            or word in BEFORE_NUMBERS
            or _DOTTED.match(token) is not None
        )

    def _is_long(self, text: str) -> bool:
        needed = MIN_FIRST_CHARS if self._is_first else MIN_CLAUSE_CHARS
        return sum(WIDE_WEIGHT if _is_wide(c) else 1 for c in text) >= needed

    def _forced(self) -> int:
        """Returns where to cut a text that is too long without an end. 0: it may still grow."""
        limit = MAX_FIRST_CHARS if self._is_first else MAX_CHARS
        if len(self._text) <= limit:
            return 0
        spaces = [at for at in range(1, limit + 1) if self._text[at].isspace()]
        # A cut after a digit would make `20 °C` and `1 000 000` sound wrong.
        good = [at for at in spaces if not self._text[at - 1].isdigit()]
        if good or spaces:
            return (good or spaces)[-1]
        return limit if len(self._text) > MAX_CHARS or _is_wide(self._text[limit]) else 0


def _token(text: str, *, lower: bool = True) -> str:
    """Returns the last word, without what opens it and without its full stop."""
    found = _LAST_TOKEN.search(text.rstrip("."))
    token = found.group().lstrip(_OPENERS) if found else ""
    token = re.split(r"[-/(—–]", token)[-1]
    return token.lower() if lower else token


def _has_words(text: str) -> bool:
    return any(c.isalnum() for c in text)


def _is_open(text: str, kinds: str = "[`(") -> bool:
    """Returns whether a bracket or a code span is open at the end of `text`."""
    tail = text[-MAX_BRACKET_CHARS:]
    if "`" in kinds and tail.count("`") % 2:
        return True
    return any(
        opening in kinds and tail.rfind(opening) > tail.rfind(closing)
        for opening, closing in ("[]", "()")
    )


def _is_wide(char: str) -> bool:
    return unicodedata.east_asian_width(char) in {"W", "F"}
