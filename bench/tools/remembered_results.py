"""Results of engines by the audio that they were computed from, also across runs.

Most audio of a measurement is the same with every setting. It is computed once.
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
    """Results by `audio_key`."""

    decodes: dict[str, AsrResult] = msgspec.field(default_factory=dict)
    probabilities: dict[str, float | None] = msgspec.field(default_factory=dict)

    @classmethod
    def read(cls, path: Path | None) -> "RememberedResults":
        """Reads them from a file; none if there is no file. Raises OSError, and ValueError for a
        file that is something else."""
        if path is None or not path.exists():
            return cls()
        return msgspec.json.decode(path.read_bytes(), type=cls)

    def write(self, path: Path | None) -> None:
        """Writes them to the file, if one is named. A run that is stopped leaves the old file or
        the new one. Raises OSError."""
        if path is not None:
            new = path.with_name(f"{path.name}.new")
            new.write_bytes(msgspec.json.encode(self))
            new.replace(path)


def audio_key(pcm: Pcm, engine: str) -> str:
    """Returns a key for the result of `engine` for this audio. `engine`: its name, and whatever
    else the result depends on."""
    return sha256(engine.encode() + pcm.tobytes()).hexdigest()[:32]


class RememberingRecogniser:
    """`Recogniser` in this process. A decode takes `decode_s` of virtual time, and is not computed
    if it is cancelled before. Partials are refused, as under load: they decide no end of a turn.
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
        """Returns the result at once."""
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
    """`EndOfTurnDetector` that judges the same audio once."""

    def __init__(self, detector: EndOfTurnDetector, results: RememberedResults) -> None:
        self.name = detector.name
        self._detector, self._results = detector, results

    def probability(self, pcm: Pcm) -> float | None:
        """See `EndOfTurnDetector.probability`."""
        key = audio_key(pcm, self.name)
        if key not in self._results.probabilities:
            self._results.probabilities[key] = self._detector.probability(pcm)
        return self._results.probabilities[key]
