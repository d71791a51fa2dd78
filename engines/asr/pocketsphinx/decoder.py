"""Typed wrapper of the PocketSphinx library: a decoder takes one utterance at a time."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from engines.asr.pocketsphinx.features import Cepstra
from engines.asr.pocketsphinx.language_model import TrigramModel
from engines.asr.pocketsphinx.pronunciation import Phones, write_dictionary

ACOUSTIC_MODEL, DICTIONARY, LANGUAGE_MODEL = "en-us", "cmudict-en-us.dict", "en-us.lm.bin"
"Names in a model folder."

LOG_BASE = 1.0001
"Base of the logarithm of PocketSphinx's scores."

_FEATURES = """\
-lowerf 130
-upperf 6800
-nfilt 25
-transform dct
-lifter 22
-feat 1s_c_d_dd
-svspec 0-12/13-25/26-38
-agc none
-cmn none
-varnorm no
-model ptm
-remove_noise no
"""
"""Replacement for the model's feat.params, whose cepstral mean and noise removal would come on top
of ours."""

_FILLERS = "<["
"First characters of words for silence and noise."


@dataclass(frozen=True, slots=True)
class WordSpan:
    """A word and its frames, end exclusive."""

    word: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class BestPath:
    """The best path of a search so far."""

    spans: tuple[WordSpan, ...]
    frames: int
    "Number of frames that were fed."
    score: float
    "Log likelihood of the path, acoustic and language model, in units of LOG_BASE; 0 or less."

    @property
    def words(self) -> list[str]:
        """The words of the path, without fillers."""
        return [span.word for span in self.spans]


class SphinxDecoder:
    """A search with one language model. Not thread-safe; one utterance at a time."""

    def __init__(self, options: Mapping[str, object]) -> None:
        from pocketsphinx import Decoder as Library

        self._library: Any = Library(loglevel="FATAL", **options)
        self._is_open = False
        self._fed_frames = 0

    @property
    def fed_frames(self) -> int:
        """Number of frames fed since `start`."""
        return self._fed_frames

    def start(self) -> None:
        """Begins an utterance; an open one is dropped."""
        self.stop()
        self._library.start_utt()
        self._is_open = True
        self._fed_frames = 0

    def feed(self, cepstra: Cepstra) -> None:
        """Continues the search with the next frames."""
        if len(cepstra):
            data = np.ascontiguousarray(cepstra, np.float32).tobytes()
            self._library.process_cep(data, False, False)
            self._fed_frames += len(cepstra)

    def stop(self) -> None:
        """Ends the utterance. After it `best` includes the frames held back for context."""
        if self._is_open:
            self._library.end_utt()
            self._is_open = False

    def decode(self, cepstra: Cepstra) -> BestPath:
        """Returns the best path of a whole utterance."""
        self.start()
        self.feed(cepstra)
        self.stop()
        return self.best()

    def best(self) -> BestPath:
        """Returns the best path so far."""
        if not self._fed_frames or (hypothesis := self._library.hyp()) is None:
            return BestPath((), self._fed_frames, 0.0)
        spans = tuple(
            WordSpan(segment.word.partition("(")[0], segment.start_frame, segment.end_frame + 1)
            for segment in self._library.seg()
            if segment.word[0] not in _FILLERS
        )
        likelihood = hypothesis.score
        score = log(likelihood) / log(LOG_BASE) if likelihood > 0 else float("-inf")
        return BestPath(spans, self._fed_frames, score)


class SphinxDecoderFactory:
    """Makes decoders with one language model, and keeps their files until `close`.

    model: folder of the acoustic model. pronunciations: by word.
    weight: of the language model against the sound.
    """

    def __init__(
        self,
        model: Path,
        language: TrigramModel,
        pronunciations: Mapping[str, Iterable[Phones]],
        weight: float,
    ) -> None:
        self._folder = TemporaryDirectory(prefix="earshot-pocketsphinx-")
        folder = Path(self._folder.name)
        (folder / "feat.params").write_text(_FEATURES, encoding="utf-8")
        language.write_arpa(folder / "commands.arpa")
        write_dictionary(folder / "commands.dict", pronunciations, language.vocabulary)
        self._command_settings = _command_options(model, folder, weight)
        self._free_speech_settings = _free_options(model, folder)

    def command_decoder(self) -> SphinxDecoder:
        """Returns a decoder for the sentences that the assistant understands."""
        return SphinxDecoder(self._command_settings)

    def free_speech_decoder(self) -> SphinxDecoder:
        """Returns a decoder for any English, with the wheel's own model of 72,000 words."""
        return SphinxDecoder(self._free_speech_settings)

    def close(self) -> None:
        """Removes the files. Decoders that were made before still work."""
        self._folder.cleanup()


def _command_options(model: Path, folder: Path, weight: float) -> dict[str, object]:
    """Returns the options of a flat search over the whole small vocabulary.

    It is exact and has no second pass. A tree search with a flat search at the end is faster per
    frame, but less accurate on 400 words, and its second pass starts only after the last sample.
    """
    return {
        "hmm": str(model / ACOUSTIC_MODEL),
        "featparams": str(folder / "feat.params"),
        "dict": str(folder / "commands.dict"),
        "lm": str(folder / "commands.arpa"),
        "fwdtree": False,
        "fwdflat": True,
        "bestpath": False,
        "fwdflatlw": weight,
        "fwdflatbeam": 1e-72,
        "fwdflatwbeam": 1e-36,
        "pl_window": 0,
    }


def _free_options(model: Path, folder: Path) -> dict[str, object]:
    """Returns the options of a tree search with a flat search over its result.

    With 72,000 words there is no other choice.
    """
    return {
        "hmm": str(model / ACOUSTIC_MODEL),
        "featparams": str(folder / "feat.params"),
        "dict": str(model / DICTIONARY),
        "lm": str(model / LANGUAGE_MODEL),
        "pl_window": 0,
    }
