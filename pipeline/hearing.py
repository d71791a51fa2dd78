"""Frames -> VAD -> endpointer: speech edges with their audio. Stateful, one per session; no I/O."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, ms_to_samples, samples_to_ms
from core.errors import RequestError
from engines.base import Vad
from pipeline.endpointer import INTERRUPT_MS, MAX_UTTERANCE_MS, Edge, Endpointer, SpeechEdge
from pipeline.settings import TurnDetection

SEMANTIC_SILENCE_MS = {"low": 900, "medium": 600, "high": 300, "auto": 450}
"What `eagerness` waits for."
MAX_PADDING_MS = 2000
"More audio from before the speech is another utterance's."
NEVER_MS = 1e12
"Silence that ends nothing: the client commits by itself."


@dataclass(frozen=True, slots=True)
class Heard:
    """One VAD frame, or at a start the padding and everything since."""

    pcm: Pcm
    edge: SpeechEdge | None
    in_speech: bool
    "Whether `pcm` belongs to an utterance (the frame that ends it included)."


class Hearing:
    def __init__(self, vad: Vad) -> None:
        self._vad = vad
        self._endpointer = Endpointer()
        self._rest: Pcm = np.zeros(0, np.int16)
        self._recent: deque[Pcm] = deque()
        self._padding_ms = 300.0
        self.samples = 0
        "Heard so far; the position of the next sample."

    def configure(self, turn_detection: TurnDetection | None) -> None:
        """None: push-to-talk. Starts are still found, for live words; nothing ends by itself."""
        detection = turn_detection or TurnDetection()
        silence_ms: float = detection.silence_ms
        if turn_detection is None:
            silence_ms = NEVER_MS
        elif detection.kind == "semantic_vad":
            silence_ms = SEMANTIC_SILENCE_MS[detection.eagerness]
        self._endpointer.threshold = detection.threshold
        self._endpointer.silence_ms = silence_ms
        self._endpointer.max_ms = NEVER_MS if turn_detection is None else MAX_UTTERANCE_MS
        self._padding_ms = min(detection.prefix_padding_ms, MAX_PADDING_MS)

    def guard(self, is_guarded: bool) -> None:
        """While the assistant speaks, a start needs more speech."""
        self._endpointer.is_guarded = is_guarded

    def reset(self) -> None:
        """Forget a running utterance and what was heard before it."""
        self._endpointer.reset()
        self._recent.clear()

    def push(self, frame: AudioFrame) -> Iterator[Heard]:
        """Raises RequestError on audio of another rate. Consume all of it."""
        if frame.rate_hz != ASR_RATE_HZ:
            raise RequestError(
                f"audio of {frame.rate_hz} Hz; the session listens at {ASR_RATE_HZ} Hz",
                code="invalid_audio_rate",
            )
        pcm = np.concatenate([self._rest, frame.pcm])
        size = self._vad.frame_samples
        whole = len(pcm) - len(pcm) % size
        self._rest = pcm[whole:]
        for offset in range(0, whole, size):
            yield self._hear(pcm[offset : offset + size])

    def recent(self) -> Pcm:
        """The audio just before now that no utterance has taken."""
        return np.concatenate(self._recent) if self._recent else np.zeros(0, np.int16)

    def _hear(self, pcm: Pcm) -> Heard:
        self.samples += len(pcm)
        was_in_speech = self._endpointer.in_speech
        edge = self._endpointer.push(self._vad.push(pcm), len(pcm))
        if edge is not None and edge.edge is Edge.STARTED:
            self._remember(pcm)
            begin = edge.at - ms_to_samples(self._padding_ms, ASR_RATE_HZ)
            recent = self.recent()
            self._recent.clear()
            wanted = self.samples - begin
            return Heard(recent[-wanted:], edge, in_speech=True)
        if was_in_speech:
            return Heard(pcm, edge, in_speech=True)
        self._remember(pcm)
        return Heard(pcm, edge, in_speech=False)

    def _remember(self, pcm: Pcm) -> None:
        self._recent.append(pcm)
        kept = sum(len(chunk) for chunk in self._recent)
        while samples_to_ms(kept - len(self._recent[0]), ASR_RATE_HZ) > (
            self._padding_ms + 2 * INTERRUPT_MS
        ):
            kept -= len(self._recent.popleft())
