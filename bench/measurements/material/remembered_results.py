"""Cache of engine results by the audio that they were computed from, also across runs.

A measurement repeats most of its audio with every setting. The engines compute it only once.
"""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from hashlib import sha256
from pathlib import Path

import msgspec

from core.audio import Pcm
from core.errors import SupersededError
from engines.base import AsrItem, AsrModel, AsrResult, EndOfTurnDetector
from serving.asr.scheduling import DecodePriority


class RememberedResults(msgspec.Struct):
    """Cached results by `audio_key`."""

    decodes: dict[str, AsrResult] = msgspec.field(default_factory=dict)
    probabilities: dict[str, float | None] = msgspec.field(default_factory=dict)

    @classmethod
    def read(cls, path: Path | None) -> "RememberedResults":
        """Returns the results in a file, or no results if there is no file.

        Raises OSError, and ValueError for a file with other content.
        """
        if path is None or not path.exists():
            return cls()
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def write(self, path: Path | None) -> None:
        """Writes the results to a file; does nothing for None. Raises OSError.

        A run that is stopped meanwhile leaves the old file or the new one, never half of it.
        """
        if path is not None:
            new = path.with_name(f"{path.name}.new")
            new.write_bytes(msgspec.json.encode(self))
            new.replace(path)


def audio_key(pcm: Pcm, engine: str) -> str:
    """Returns the key of a result for this audio.

    engine: name of the engine, and everything else that the result depends on.
    """
    return sha256(engine.encode() + pcm.tobytes()).hexdigest()[:32]


class RememberingRecogniser:
    """Caches the results of a model that runs in this process. It is a `Recogniser`.

    A decode takes `decode_s` seconds of virtual time, and computes nothing if it is cancelled
    meanwhile. Partials are refused, as under load, because no end of a turn depends on them.
    """

    def __init__(self, model: AsrModel, results: RememberedResults, decode_s: float) -> None:
        self.info = model.info
        self._model, self._results, self._decode_s = model, results, decode_s

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        if not item.is_final:
            raise SupersededError("no partials in this measurement")
        await asyncio.sleep(self._decode_s)
        return self.result(item)

    def result(self, item: AsrItem) -> AsrResult:
        """Returns the result of an item without a wait."""
        key = audio_key(item.pcm, f"{self.info.model} {item.options}")
        if key not in self._results.decodes:
            self._results.decodes[key] = self._model.decode([item])[0]
        return self._results.decodes[key]

    def forget(self, utterance: str) -> None:
        self._model.forget(utterance)

    def hold(self) -> AbstractContextManager[None]:
        return nullcontext()

    def admit(self, priority: DecodePriority) -> None: ...

    def promote(self, utterance: str) -> None: ...


class RememberingDetector:
    """Caches the results of an `EndOfTurnDetector`, and is one itself."""

    def __init__(self, detector: EndOfTurnDetector, results: RememberedResults) -> None:
        self.name = detector.name
        self._detector, self._results = detector, results

    def probability(self, pcm: Pcm) -> float | None:
        """See `EndOfTurnDetector.probability`."""
        key = audio_key(pcm, self.name)
        if key not in self._results.probabilities:
            self._results.probabilities[key] = self._detector.probability(pcm)
        return self._results.probabilities[key]
