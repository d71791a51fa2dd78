"""Engine for speakers: the public models of sherpa-onnx, such as CAM++, ERes2Net, TitaNet and
those of WeSpeaker.

The library ends its process when it is given a file that it does not expect. So the file is checked
before it sees it, and it runs in a worker process like every model that recognises speakers.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta, Struct

from core.audio import ASR_RATE_HZ
from core.conversation.speakers import VoiceThresholds, VoiceVector
from core.errors import ConfigError, EngineError
from engines.base.speaker import SpeakerItem, SpeakerModelInfo, SpeakerResult
from engines.speaker.ge2e.speech import Samples, find_speech
from engines.speaker.sherpa.model_file import NAME, SpeakerFile, read_speaker_file

EXTRA = "sherpa"
REQUIRES = {"sherpa_onnx": "sherpa-onnx", "webrtcvad": "webrtcvad-wheels"}

MIN_SPEECH_MS = 500
"Shortest speech of which a vector is made, as with the engine `ge2e`."

THRESHOLDS = VoiceThresholds(known=0.6, guard=0.7, group=0.56, small_group=0.58)
"""Scores that count, unless the settings name others. The project publishes 0.4 to 0.6 for its
models; these were not measured, so they are on the side of caution."""

SAMPLE_SCALE = np.float32(1 / 32768)
"Factor from an int16 sample to one of -1 to 1."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine."""

    model: str
    "Folder of the model."
    threads: Annotated[int, Meta(ge=1, le=64)] = 1
    "Threads that compute one vector."


def create(settings: Settings) -> "SherpaSpeakers":
    """Loads the model.

    Raises EngineMissing if there is none, ConfigError if it cannot be loaded, EngineError if it
    gives no vectors, ImportError without the library.
    """
    file = read_speaker_file(Path(settings.model))
    import sherpa_onnx

    config = sherpa_onnx.SpeakerEmbeddingExtractorConfig(
        model=str(file.path), num_threads=settings.threads
    )
    try:
        extractor = sherpa_onnx.SpeakerEmbeddingExtractor(config)
    except (RuntimeError, ValueError, OSError) as error:  # damage that the notes do not show
        raise ConfigError(f"{file.path} cannot be loaded: {error}") from error
    speakers = SherpaSpeakers(extractor, _info(Path(settings.model), file))
    # A network of the wrong shape ends the process at its first use: let that be here, where it
    # counts as a model that is refused, and not in a conversation.
    speakers.vector(np.zeros(ASR_RATE_HZ, np.float32))
    return speakers


def read_info(folder: Path) -> SpeakerModelInfo:
    """Reads the properties of a model without loading it. Raises EngineMissing if there is none,
    ConfigError if the library would refuse it."""
    return _info(folder, read_speaker_file(folder))


def _info(folder: Path, file: SpeakerFile) -> SpeakerModelInfo:
    return SpeakerModelInfo(
        NAME, folder.name, file.dimensions, min_speech_ms=MIN_SPEECH_MS, thresholds=THRESHOLDS
    )


class SherpaSpeakers:
    """A `SpeakerModel`."""

    def __init__(self, extractor: Any, info: SpeakerModelInfo) -> None:
        """`extractor`: the library's SpeakerEmbeddingExtractor."""
        self._extractor, self.info = extractor, info

    def embed(self, items: Sequence[SpeakerItem]) -> list[SpeakerResult]:
        """Computes the items, one after the other. Raises EngineError."""
        return [self._embed(item) for item in items]

    def close(self) -> None:
        """Does nothing: the end of the worker process frees the model."""

    def _embed(self, item: SpeakerItem) -> SpeakerResult:
        pcm = np.frombuffer(item.pcm[: len(item.pcm) // 2 * 2], "<i2")
        speech = find_speech(pcm.astype(np.float32) * SAMPLE_SCALE)
        if speech.quality.speech_ms < MIN_SPEECH_MS:
            return SpeakerResult(b"", speech.quality)
        vector = self.vector(speech.samples)
        length = float(np.linalg.norm(vector))
        if not np.isfinite(length) or not length:
            raise EngineError("speaker", NAME, f"the network gave a vector of the length {length}")
        return SpeakerResult((vector / length).astype("<f4").tobytes(), speech.quality)

    def vector(self, samples: Samples) -> VoiceVector:
        """Returns the vector of at least 0.1 s of sound, of any length. Raises EngineError."""
        stream = self._extractor.create_stream()
        # A list is twice as fast as an array, of which the library converts each element.
        stream.accept_waveform(ASR_RATE_HZ, samples.tolist())
        stream.input_finished()
        try:
            vector: VoiceVector = np.array(self._extractor.compute(stream), np.float32)
        except RuntimeError as error:
            raise EngineError("speaker", NAME, f"the network fails: {error}") from error
        if len(vector) != self.info.dimensions:
            why = f"the network gave {len(vector)} numbers, not {self.info.dimensions}"
            raise EngineError("speaker", NAME, why)
        return vector
