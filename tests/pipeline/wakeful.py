"""A wake word that is a loud sound, and sessions that wait for it."""

from base64 import b64decode
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from core.audio import Pcm
from engines.base.wake import WakeWord, WakeWordDetection, WakeWordDetector
from pipeline.services import SessionServices
from tests.pipeline.fakes import Kept, World

NAME = "computer"


WORD_LEVEL = 9000
"The level that the scripted engine takes for the wake word; the recogniser has no word for it."
HALT, HALT_LEVEL = "halt", 8000
"A stop word of the scripted engine, and its level."


class LevelWake:
    """A detector that reports the first loud samples after its reset, `late_ms` after them."""

    def __init__(self, names: Sequence[str], late_ms: int) -> None:
        self._late = late_ms * 16
        self._levels = {name: HALT_LEVEL if name == HALT else WORD_LEVEL for name in names}
        self._heard, self._is_told = 0, False
        self._ended: int | None = None

    def push(self, pcm: Pcm) -> tuple[WakeWordDetection, ...]:
        self._heard += len(pcm)
        peak = int(np.abs(pcm).max())
        level = min(WORD_LEVEL, peak)  # a resampler overshoots
        if level in self._levels.values() and self._ended is None:
            self._ended = self._heard
            self._name = next(name for name, own in self._levels.items() if own == level)
        if self._ended is None or self._is_told or self._heard < self._ended + self._late:
            return ()
        self._is_told = True
        return (WakeWordDetection(self._name, self._heard, self._ended),)

    def reset(self) -> None:
        self._heard, self._is_told, self._ended = 0, False, None


@dataclass
class LevelWakes:
    late_ms: int = 0
    name: str = "level"
    words: tuple[WakeWord, ...] = (
        WakeWord(NAME, "Computer", ("en",)),
        WakeWord("robot", "Robot", ("en",)),
        WakeWord(HALT, "Halt", ("en",), is_stop=True),
    )

    def open(self, names: Sequence[str]) -> WakeWordDetector:
        return LevelWake(names, self.late_ms)


@dataclass
class WakefulWorld(World):
    trace: Kept = field(default_factory=Kept)
    late_ms: int = 0

    def services(self) -> SessionServices:
        usual = super().services()
        engines = replace(usual.engines, wake=LevelWakes(self.late_ms))
        return replace(usual, engines=engines, trace=self.trace, traces_sound=True)

    def loudest(self) -> int:
        """Returns the loudest sample that the recogniser got."""
        return max((int(np.abs(item.pcm).max()) for _, _, item in self.asr.asked), default=0)

    def kept_levels(self) -> set[int]:
        """Returns the levels of all sound in the trace."""
        sound = [record["pcm"] for record in self.trace.records if "pcm" in record]
        samples = np.frombuffer(b"".join(b64decode(pcm) for pcm in sound), "<i2")
        return {int(level) for level in np.unique(samples)}
