"""Text normalization: a response's clauses as a voice should read them. Pure.

Markdown and emoji are removed, units and symbols become words. The transcript keeps the text as the
model wrote it; `NormalizedText.origin` leads back to it.
"""

from pipeline.speech.normalize.emoji import drop_emoji, read_addresses, tidy
from pipeline.speech.normalize.mapped_text import MappedText, NormalizedText
from pipeline.speech.normalize.markdown import FENCE, read_block, read_links, read_marks
from pipeline.speech.normalize.units import months, read_words

__all__ = ["ClauseNormalizer", "NormalizedText", "speakable"]


class ClauseNormalizer:
    """Normalizes the clauses of one response. Between them it only remembers an open code block."""

    def __init__(self, language: str) -> None:
        """Takes the language (ISO 639-1).

        One without a table gets only what all languages share.
        """
        self._language = language
        self._in_code = False

    def read(self, clause: str, language: str | None = None) -> NormalizedText:
        """Returns the clause as it is read aloud.

        Code blocks are left out: they cannot be listened to. language: that of this clause. None:
        that of the response.
        """
        language = language or self._language
        text, written, start = MappedText("", ()), MappedText.of(clause), 0
        for line in clause.splitlines(keepends=True):
            end = start + len(line)
            if FENCE.match(line):
                self._in_code = not self._in_code
            elif not self._in_code:
                text += _line(written.part(start, end), language)
            start = end
        return tidy(text).spoken(clause)


def speakable(clause: str, language: str) -> str:
    """Returns one clause, taken alone, as a voice reads it."""
    return ClauseNormalizer(language).read(clause).text


def _line(line: MappedText, language: str) -> MappedText:
    has_break = line.text.endswith(("\n", "\r", "\u2028"))
    rest = line.part(len(line.text) - 1, len(line.text)) if has_break else MappedText("", ())
    text = line.part(0, len(line.text) - len(rest.text))
    text = read_marks(read_addresses(read_links(read_block(text, months(language)))))
    text = tidy(drop_emoji(text))
    return tidy(read_words(text, language)) + rest
