"""Engine for speakers: GE2E, a network of 5.7 MB with 256 numbers per voice (Wan et al. 2018).

The weights are Resemblyzer's (Apache-2.0), trained on English speech of some thousand people. They
come with `earshot models pull ge2e`. numpy computes them, so torch is not needed.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from msgspec import Struct

from engines.base.speaker import SpeakerItem, SpeakerModelInfo, SpeakerResult
from engines.speaker.ge2e.network import Ge2eNetwork, read_dimensions
from engines.speaker.ge2e.speech import find_speech

REQUIRES = {"webrtcvad": "webrtcvad-wheels"}

MIN_SPEECH_MS = 500
"""Shortest speech of which a vector is made. A single short word says next to nothing about a
voice."""


SAMPLE_SCALE = np.float32(1 / 32768)
"Factor from an int16 sample to one of -1 to 1."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine."""

    model: str
    "Folder of the model."


def create(settings: Settings) -> "Ge2e":
    """Loads the model. Raises EngineError if its file is missing or damaged."""
    return Ge2e(settings)


def read_info(folder: Path) -> SpeakerModelInfo:
    """Reads the properties of a model without its weights. Raises EngineError if its file is
    missing or damaged."""
    return _info(folder, read_dimensions(folder))


def _info(folder: Path, dimensions: int) -> SpeakerModelInfo:
    return SpeakerModelInfo("ge2e", folder.name, dimensions, min_speech_ms=MIN_SPEECH_MS)


class Ge2e:
    """A `SpeakerModel`."""

    def __init__(self, settings: Settings) -> None:
        folder = Path(settings.model)
        self._network = Ge2eNetwork.load(folder)
        self.info = _info(folder, self._network.dimensions)

    def embed(self, items: Sequence[SpeakerItem]) -> list[SpeakerResult]:
        """Computes the items, one after the other."""
        return [self._embed(item) for item in items]

    def close(self) -> None:
        """Does nothing: the end of the worker process frees the model."""

    def _embed(self, item: SpeakerItem) -> SpeakerResult:
        pcm = np.frombuffer(item.pcm[: len(item.pcm) // 2 * 2], "<i2")
        speech = find_speech(pcm.astype(np.float32) * SAMPLE_SCALE)
        if speech.quality.speech_ms < MIN_SPEECH_MS:
            return SpeakerResult(b"", speech.quality)
        vector = self._network.embed(speech.samples)
        return SpeakerResult(vector.astype("<f4").tobytes(), speech.quality)
