"""Engine for the keyword spotters of sherpa-onnx: wake words and stop words that the user types.

A spotter is a streaming transducer. The library ends its process for files that it does not expect.
So the files are checked, then tried in a process of their own, before this process loads them.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from core.errors import ConfigError, EngineMissing
from engines.asr.sherpa.model_folder import AUTO, SherpaModel, read_model
from engines.asr.sherpa.releases import find_release
from engines.base.wake import WakeWord, WakeWordDetection, WakeWordDetector
from engines.wake.sherpa.keywords import Keyword, KeywordWriter, name_of
from engines.wake.sherpa.trial import open_spotter, try_model

EXTRA = "sherpa"
REQUIRES = {"sherpa_onnx": "sherpa-onnx"}

LAST_TOKEN_MS = 200
"""Assumed length of the last token. The library says where a token begins, and nothing about its
end. If the end of a word is set too late, the beginning of a command in the same breath is lost. If
it is set too early, a piece of the word stays in the command."""

STEP_SAMPLES = 320
"Samples after which a detection is looked for, so that its position is right to 20 ms."

SAMPLE_SCALE = np.float32(1 / 32768)
"Factor from an int16 sample to one of -1 to 1, as the library wants it."

Threshold = Annotated[float, Meta(gt=0, lt=1)]
Boost = Annotated[float, Meta(gt=0, le=20)]


class Phrase(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A phrase with settings of its own."""

    phrase: Annotated[str, Meta(min_length=1, max_length=64)]
    "The words that a person says."
    tokens: str = ""
    "Tokens of the model, with spaces between them; empty: they are made from the phrase."
    threshold: Threshold | None = None
    "In place of that of the engine."
    boost: Boost | None = None
    "In place of that of the engine."


PlainPhrase = Annotated[str, Meta(min_length=1, max_length=64)]


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the engine `sherpa`."""

    model: str = ""
    "Name of a folder in the models folder, or a path."
    words: Annotated[tuple[PlainPhrase | Phrase, ...], Meta(max_length=32)] = ()
    "Phrases that wake a session: hey jarvis."
    stop_words: Annotated[tuple[PlainPhrase | Phrase, ...], Meta(max_length=32)] = ()
    "Phrases that only end an answer: stop."
    threshold: Threshold = 0.25
    "Probability above which a phrase counts."
    boost: Boost = 1.0
    """Factor for the tokens of a phrase in the search. With a larger one the phrase is found more
    easily."""
    threads: Annotated[int, Meta(ge=1, le=8)] = 1
    "Threads that compute one step."


class SherpaWake:
    """A `WakeWordDetector`: one stream of the library's spotter."""

    def __init__(self, spotter: Any, keywords: Sequence[Keyword]) -> None:
        self._spotter, self._keywords = spotter, "/".join(one.line for one in keywords)
        self._sample_count = 0
        self._stream = self._opened()

    def push(self, pcm: Pcm) -> tuple[WakeWordDetection, ...]:
        """Returns the wake words in the next samples (see `WakeWordDetector.push`)."""
        detections: list[WakeWordDetection] = []
        for start in range(0, len(pcm), STEP_SAMPLES):
            detections += self._push_step(pcm[start : start + STEP_SAMPLES])
        return tuple(detections)

    def _push_step(self, pcm: Pcm) -> list[WakeWordDetection]:
        self._sample_count += len(pcm)
        # A list is what the library reads fastest.
        self._stream.accept_waveform(ASR_RATE_HZ, (pcm * SAMPLE_SCALE).tolist())
        detections: list[WakeWordDetection] = []
        # The library ends the process if it is given a stream that is not ready.
        while self._spotter.is_ready(self._stream):
            self._spotter.decode_stream(self._stream)
            # Only this form has name and times together, and a result can be read only once.
            found = self._spotter.keyword_spotter.get_result(self._stream)
            if found.keyword:
                detections.append(self._detection(found.keyword, found.timestamps))
        return detections

    def reset(self) -> None:
        """Clears the state (see `WakeWordDetector.reset`)."""
        self._sample_count = 0
        self._stream = self._opened()

    def _detection(self, name: str, times_s: Sequence[float]) -> WakeWordDetection:
        last_ms = 1000 * times_s[-1] if times_s else 0.0
        end = ms_to_samples(last_ms + LAST_TOKEN_MS, ASR_RATE_HZ)
        return WakeWordDetection(
            name, self._sample_count, min(end, self._sample_count) if times_s else end
        )

    def _opened(self) -> Any:
        return self._spotter.create_stream(self._keywords)


class SherpaWakeEngine:
    """A `WakeWordEngine` for `SherpaWake`."""

    name = "sherpa"

    def __init__(
        self, spotter: Any, keywords: Sequence[Keyword], words: tuple[WakeWord, ...]
    ) -> None:
        self._spotter, self._keywords = spotter, {one.name: one for one in keywords}
        self.words = words

    def open(self, names: Sequence[str]) -> WakeWordDetector:
        """Returns a detector for these words (see `WakeWordEngine.open`)."""
        return SherpaWake(self._spotter, [self._keywords[name] for name in names])


def create(settings: Settings) -> SherpaWakeEngine:
    """Returns the engine with its model loaded.

    Raises EngineMissing if there is no model, ConfigError for a model that cannot be loaded or a
    phrase that it cannot write, ImportError without the library.
    """
    if not settings.model:
        raise EngineMissing("wake", "sherpa", missing_weights())
    if not (settings.words or settings.stop_words):
        raise ConfigError("wake.sherpa: `words` has no phrase, such as hey jarvis")
    model = _spotter_model(Path(settings.model).expanduser())
    import sherpa_onnx  # noqa: F401  # before the trial, so that a missing library is reported as such

    phrases = [*map(_phrase, settings.words), *map(_phrase, settings.stop_words)]
    names = [name_of(one.phrase) for one in phrases]
    if repeated := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigError(f"wake.sherpa: {', '.join(repeated)} is named more than once")
    writer = KeywordWriter(model)
    keywords = [
        Keyword(
            name,
            writer.written(one.phrase, one.tokens),
            one.boost or settings.boost,
            one.threshold or settings.threshold,
        )
        for name, one in zip(names, phrases, strict=True)
    ]
    files = {"tokens": str(model.tokens)} | {part: str(file) for part, file in model.files.items()}
    try_model(model.folder, files, "/".join(one.line for one in keywords))
    languages = _languages(model)
    words = tuple(
        WakeWord(name, one.phrase, languages, is_stop=at >= len(settings.words))
        for at, (name, one) in enumerate(zip(names, phrases, strict=True))
    )
    return SherpaWakeEngine(open_spotter(**files, threads=settings.threads), keywords, words)


def missing_weights() -> str:
    """Returns what the user must set, because no model comes with the engine."""
    return (
        "needs `model` and `words`; `earshot models pull sherpa:NAME` fetches a model, and"
        " docs/wake-words.md names them"
    )


def _phrase(given: str | Phrase) -> Phrase:
    return Phrase(phrase=given) if isinstance(given, str) else given


def _spotter_model(folder: Path) -> SherpaModel:
    try:
        model = read_model(folder, AUTO)
    except EngineMissing as error:
        raise EngineMissing("wake", "sherpa", error.detail) from error
    if not (model.family.is_streaming and model.family.can_search):
        raise ConfigError(
            f"{folder} holds a {model.family.name}; keywords need a streaming transducer of icefall"
        )
    return model


def _languages(model: SherpaModel) -> tuple[str, ...]:
    """Returns the languages of a model: those of its release, or those in its name."""
    release = find_release(model.name)
    named = re.findall(r"(?<![a-z])(zh|en)(?![a-z])", model.name)
    return release.languages if release else tuple(named) or ("en",)
