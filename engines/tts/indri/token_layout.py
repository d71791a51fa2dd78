"""Ids of an Indri checkpoint: text, codes of the audio codec, markers and speakers.

The vocabulary has the text's tokens first, then all codes of the first codebook, of the second one,
and so on, then the markers and speakers. All ids come from the checkpoint's tokenizer.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

CODEBOOKS = 8
"Codebooks of Mimi that the model writes. Their codes make one frame."

CODEBOOK_SIZE = 2048
"Number of different codes in each codebook."

AUDIO_IDS = CODEBOOKS * CODEBOOK_SIZE

UNKNOWN_SPEAKER = "spkr_unk"
"Speaker of a recording that the model was not trained with. It is no voice of its own."

SPEAKER = re.compile(r"\[(spkr_\w+)\]")
"Token of a speaker. The name in it is the voice's name."


class LayoutError(ValueError):
    """The tokenizer of a checkpoint is not that of an Indri model."""


class Encoding(Protocol):
    """Result of `IndriTokenizer.encode`."""

    @property
    def ids(self) -> list[int]:
        """Ids of the tokens."""
        ...


class IndriTokenizer(Protocol):
    """The methods of a `tokenizers.Tokenizer` that are used."""

    def encode(self, sequence: str, *, add_special_tokens: bool) -> Encoding:
        """Returns the tokens of a text."""
        ...

    def get_vocab(self, with_added_tokens: bool) -> dict[str, int]:
        """Returns the ids by token."""
        ...


@dataclass(frozen=True, slots=True)
class TokenLayout:
    """Ids of one checkpoint."""

    first_audio: int
    "Id of code 0 of the first codebook. Ids below are text."
    text: int
    "Marker before the text."
    mimi: int
    "Marker before the sound."
    convert: int
    "Marker between the two: the text is to be spoken."
    stop: int
    "End of the speech."
    speakers: Mapping[str, int]
    "Id by name of the speaker, such as `spkr_63`, in ascending order of the ids."

    @classmethod
    def read(cls, tokenizer: IndriTokenizer, vocabulary: int) -> "TokenLayout":
        """Resolves all ids. `vocabulary`: number of ids of the language model.

        Raises LayoutError if a token is missing, or if its id cannot be right.
        """
        # Text has all ids of the tokenizer's model. What was added for the sound comes after them.
        first_audio = len(tokenizer.get_vocab(with_added_tokens=False))

        def marker(token: str) -> int:
            ids = tokenizer.encode(token, add_special_tokens=False).ids
            if len(ids) != 1:
                raise LayoutError(f"the tokenizer has no token {token}")
            if not first_audio + AUDIO_IDS <= ids[0] < vocabulary:
                raise LayoutError(
                    f"the token {token} has the id {ids[0]}; allowed:"
                    f" {first_audio + AUDIO_IDS} to {vocabulary - 1}"
                )
            return ids[0]

        tokens = tokenizer.get_vocab(with_added_tokens=True)
        found = {match[1]: marker(token) for token in tokens if (match := SPEAKER.fullmatch(token))}
        found.pop(UNKNOWN_SPEAKER, None)
        if not found:
            raise LayoutError("the tokenizer has no speakers, such as [spkr_63]")
        return cls(
            first_audio=first_audio,
            text=marker("[text]"),
            mimi=marker("[mimi]"),
            convert=marker("[convert]"),
            stop=marker("[stop]"),
            speakers=dict(sorted(found.items(), key=lambda speaker: speaker[1])),
        )

    def first_code(self, codebook: int) -> int:
        """Returns the id of code 0 of a codebook."""
        return self.first_audio + codebook * CODEBOOK_SIZE
