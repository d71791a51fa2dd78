"""Engine for PocketSphinx with a language model of the commands that the assistant understands.

It recognises English with little delay on a CPU, without a download: the acoustic model comes with
the library's wheel.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from core.errors import ConfigError
from engines.asr.pocketsphinx.decoder import (
    ACOUSTIC_MODEL,
    DICTIONARY,
    LANGUAGE_MODEL,
    SphinxDecoderFactory,
)
from engines.asr.pocketsphinx.language_model import TrigramModel
from engines.asr.pocketsphinx.model import INFO, ConfidenceLimits, PocketSphinx
from engines.asr.pocketsphinx.phrases import SENTENCE_COUNT, default_phrases
from engines.asr.pocketsphinx.pronunciation import read_dictionary
from engines.base import AsrInfo

EXTRA = "pocketsphinx"
REQUIRES = {"pocketsphinx": "pocketsphinx"}

_WORD = re.compile(r"[^\W\d_]+(?:'[^\W\d_]+)*")


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the engine `pocketsphinx`."""

    phrases: tuple[str, ...] = ()
    "Sentences that the assistant understands, lower case; added to the built-in ones."
    model_dir: str | None = None
    "Folder with en-us/ and cmudict-en-us.dict; None: the one in PocketSphinx's wheel."
    lm_weight: Annotated[float, Meta(ge=1, le=30)] = 10.0
    "Weight of the language model against the sound: below 8 it mishears, above 12 it guesses."
    min_confidence: Annotated[float, Meta(ge=0, le=1)] = 0.835
    "Confidence below which a command is rejected, or decoded again as free speech."
    min_partial_confidence: Annotated[float, Meta(ge=0, le=1)] = 0.2
    "Confidence below which a partial is not shown. Low, because half a sentence is always unsure."
    second_look: Annotated[float, Meta(ge=0, le=1)] = 0.8
    "Confidence below which a final is decoded again, normalised by the whole utterance; 0: never."
    free_speech: bool = True
    "Decode speech that is no command with the general model: slower, every third word wrong."
    min_speech_confidence: Annotated[float, Meta(ge=0, le=1)] = 0.9
    "Confidence below which free speech is rejected as noise."
    max_free_s: Annotated[float, Meta(ge=1, le=120)] = 30
    "Longest free speech: decoding takes a fifth of its length, and other utterances wait."
    decoders: Annotated[int, Meta(ge=1, le=256)] = 16
    "Utterances whose search stays open between partials; with more the oldest starts again."


def describe(_: Settings) -> AsrInfo:
    """Returns the description of the engine, which is the same for all settings."""
    return INFO


def create(settings: Settings) -> PocketSphinx:
    """Returns the engine. Trains the language model and loads the acoustic one in half a second.

    Raises ConfigError if `model_dir` contains no model, ImportError without the library.
    """
    folder = Path(settings.model_dir) if settings.model_dir else _bundled_folder()
    needed = [folder / DICTIONARY, folder / ACOUSTIC_MODEL / "mdef"]
    if settings.free_speech:
        needed.append(folder / LANGUAGE_MODEL)
    if missing := [path for path in needed if not path.is_file()]:
        raise ConfigError(f"asr.options.model_dir: there is no {missing[0]}")
    language = TrigramModel(training_text(settings.phrases))
    pronunciations = read_dictionary(folder / DICTIONARY, language.vocabulary)
    decoders = SphinxDecoderFactory(folder, language, pronunciations, settings.lm_weight)
    return PocketSphinx(language, decoders, _confidence_limits(settings))


def _confidence_limits(settings: Settings) -> ConfidenceLimits:
    return ConfidenceLimits(
        min_confidence=settings.min_confidence,
        min_partial_confidence=settings.min_partial_confidence,
        min_speech_confidence=settings.min_speech_confidence,
        second_look=settings.second_look,
        max_free_s=settings.max_free_s if settings.free_speech else 0.0,
        decoders=settings.decoders,
    )


def training_text(phrases: Sequence[str]) -> tuple[str, ...]:
    """Returns the built-in sentences, and about as many copies of the given ones.

    The given ones have the names of the real rooms and lamps; the built-in ones have more ways to
    ask. Words are made lower case; all characters but letters and apostrophes separate them.
    """
    added = [words for phrase in phrases if (words := " ".join(_WORD.findall(phrase.lower())))]
    copies = max(1, round(SENTENCE_COUNT / len(added))) if added else 0
    return default_phrases() + tuple(added) * copies


def _bundled_folder() -> Path:
    from pocketsphinx import get_model_path

    return Path(get_model_path()) / "en-us"
