"""PocketSphinx with a language model of what the assistant understands: hears English at once,
on a CPU, with nothing to download. The acoustic model comes with the library's wheel.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from core.errors import ConfigError
from engines.asr.pocketsphinx.decoder import (
    ACOUSTIC,
    DICTIONARY,
    LANGUAGE_MODEL,
    SphinxDecoderFactory,
)
from engines.asr.pocketsphinx.language_model import TrigramModel
from engines.asr.pocketsphinx.model import INFO, ConfidenceLimits, PocketSphinx
from engines.asr.pocketsphinx.phrases import SENTENCES, default_phrases
from engines.asr.pocketsphinx.pronunciation import read_dictionary
from engines.base import AsrInfo

REQUIRES = {"pocketsphinx": "pocketsphinx"}

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    phrases: tuple[str, ...] = ()
    "Sentences the assistant understands, lower case; they share the model with the built-in ones."
    model_dir: str | None = None
    "Folder with en-us/ and cmudict-en-us.dict. None: the one in PocketSphinx's wheel."
    lm_weight: Annotated[float, Meta(ge=1, le=30)] = 10.0
    "Of the language model against the sound: below 8 it mishears, above 12 it guesses."
    min_confidence: Annotated[float, Meta(ge=0, le=1)] = 0.835
    "A command less sure than this is rejected, or heard again as free speech."
    min_partial_confidence: Annotated[float, Meta(ge=0, le=1)] = 0.2
    "A partial less sure than this is not shown. Low: half a sentence is always unsure."
    second_look: Annotated[float, Meta(ge=0, le=1)] = 0.8
    "A final less sure than this is decoded again, normalised by the whole utterance; 0 never."
    free_speech: bool = True
    "What is no command, but speech, is decoded with the general model: slower, every third wrong."
    min_speech_confidence: Annotated[float, Meta(ge=0, le=1)] = 0.9
    "Free speech less sure than this is rejected as noise."
    max_free_s: Annotated[float, Meta(ge=1, le=120)] = 30
    "Longer free speech is rejected: its decoding takes a fifth of its length, and others wait."
    decoders: Annotated[int, Meta(ge=1, le=256)] = 16
    "Utterances whose search stays open between partials; beyond it the oldest starts over."


def describe(_: Settings) -> AsrInfo:
    """What it will be, whatever it is told."""
    return INFO


def create(settings: Settings) -> PocketSphinx:
    """Train the language model and load the acoustic one: about half a second.

    Raises ConfigError if `model_dir` has no model in it, ImportError without the library.
    """
    folder = Path(settings.model_dir) if settings.model_dir else _bundled()
    needed = [folder / DICTIONARY, folder / ACOUSTIC / "mdef"]
    if settings.free_speech:
        needed.append(folder / LANGUAGE_MODEL)
    if missing := [path for path in needed if not path.is_file()]:
        raise ConfigError(f"asr.options.model_dir: no {missing[0]}")
    language = TrigramModel(training_text(settings.phrases))
    known = read_dictionary(folder / DICTIONARY, language.vocabulary)
    decoders = SphinxDecoderFactory(folder, language, known, settings.lm_weight)
    return PocketSphinx(language, decoders, _limits(settings))


def _limits(settings: Settings) -> ConfidenceLimits:
    return ConfidenceLimits(
        min_confidence=settings.min_confidence,
        min_partial_confidence=settings.min_partial_confidence,
        min_speech_confidence=settings.min_speech_confidence,
        second_look=settings.second_look,
        max_free_s=settings.max_free_s if settings.free_speech else 0.0,
        decoders=settings.decoders,
    )


def training_text(phrases: Sequence[str]) -> tuple[str, ...]:
    """The built-in sentences, and as much text again of the given ones.

    Both, because the given ones name the real rooms and lamps, and the built-in ones know more ways
    to ask. Words are lower-cased; what is not a letter or an apostrophe separates them.
    """
    given = [words for phrase in phrases if (words := " ".join(_WORD.findall(phrase.lower())))]
    often = max(1, round(SENTENCES / len(given))) if given else 0
    return default_phrases() + tuple(given) * often


def _bundled() -> Path:
    from pocketsphinx import get_model_path

    return Path(get_model_path()) / "en-us"
