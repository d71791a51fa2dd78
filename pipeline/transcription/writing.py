"""Scripts that put no space between words: what counts as a word, and where texts meet. Pure."""

import re
from collections.abc import Iterable

# Thai and Lao, Burmese, Khmer, kana with CJK punctuation, ideographs, full-width forms.
_UNSPACED = (
    r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3001-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uf900-\ufaff\uff00-\uffef\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"\s?(?:[{_UNSPACED}]|[^\s{_UNSPACED}]+)")
_CHARACTER = re.compile(f"[{_UNSPACED}]")


def words_of(text: str) -> list[str]:
    """Words, each with the space before it, if any; of an unspaced script, its characters."""
    return _WORD.findall(" ".join(text.split()))


def join_texts(texts: Iterable[str]) -> str:
    """With a space where they meet, unless a character there is of an unspaced script.

    The text decides, not its language: a translation of Chinese is English.
    """
    whole = ""
    for text in filter(None, texts):
        meets = _CHARACTER.match(text) or _CHARACTER.match(whole[-1:])
        whole += text if meets or not whole else f" {text}"
    return whole
