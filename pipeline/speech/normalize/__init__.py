"""One answer, clause by clause, as it is read aloud. Pure."""

from pipeline.speech.normalize.emoji import drop_emoji, read_addresses, tidy
from pipeline.speech.normalize.mapped_text import MappedText, NormalizedText
from pipeline.speech.normalize.markdown import FENCE, read_block, read_links, read_marks
from pipeline.speech.normalize.units import months, read_words


class ClauseNormalizer:
    """Remembers between clauses only whether a code block is open."""

    def __init__(self, language: str) -> None:
        """`language`: ISO 639-1; one without a table gets what is the same in all."""
        self._language = language
        self._months = months(language)
        self._in_code = False

    def read(self, clause: str) -> NormalizedText:
        """Code blocks are not read: nobody can listen to them."""
        text, written, start = MappedText("", ()), MappedText.of(clause), 0
        for line in clause.splitlines(keepends=True):
            end = start + len(line)
            if FENCE.match(line):
                self._in_code = not self._in_code
            elif not self._in_code:
                text += self._line(written.part(start, end))
            start = end
        return tidy(text).spoken(clause)

    def _line(self, line: MappedText) -> MappedText:
        has_break = line.text.endswith(("\n", "\r", "\u2028"))
        rest = line.part(len(line.text) - 1, len(line.text)) if has_break else MappedText("", ())
        text = line.part(0, len(line.text) - len(rest.text))
        text = read_marks(read_addresses(read_links(read_block(text, self._months))))
        text = tidy(drop_emoji(text))
        return tidy(read_words(text, self._language)) + rest


def speakable(clause: str, language: str) -> str:
    """What a voice reads of one clause on its own."""
    return ClauseNormalizer(language).read(clause).text


# What a voice reads instead of what is written: no markdown, no emoji, units and symbols as words.
#
# The transcript keeps the text as the model wrote it; `NormalizedText.origin` leads back to it.

__all__ = ["ClauseNormalizer", "NormalizedText", "speakable"]
