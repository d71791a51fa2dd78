"""Frames -> VAD -> endpointer: speech edges with their audio. Stateful, one per session; no I/O."""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, ms_to_samples
from core.errors import RequestError
from engines.base import Vad
from pipeline.shared.settings import TurnDetection
from pipeline.user_turn.endpointing import (
    INTERRUPT_MS,
    MAX_UTTERANCE_MS,
    Eagerness,
    EdgeKind,
    Endpointer,
    SpeechEdge,
    endpoint_delay_ms,
)
from pipeline.user_turn.speech_offset import SpeechOffset

MAX_PADDING_MS = 2000
"More audio from before the speech is another utterance's."
NEVER_MS = 1e12
"Silence that ends nothing: the client commits by itself."


class DetectedFrame(NamedTuple):
    """One VAD frame, or at a start the padding and everything since. A tuple as `AudioFrame` is."""

    pcm: Pcm
    edge: SpeechEdge | None
    in_speech: bool
    "Whether `pcm` belongs to an utterance (the frame that ends it included)."
    probability: float
    "The VAD's word on the last frame."


class SpeechDetector:
    def __init__(self, vad: Vad, late_ms: float = 0) -> None:
        """`late_ms`: by which sound is older than its frame, at least, when it comes."""
        self._vad, self._late_ms = vad, late_ms
        self._endpointer = Endpointer()
        self._audible = SpeechOffset(late_ms)
        self._eagerness: Eagerness | None = None
        "semantic_vad: the wait may change within a pause."
        self._rest: Pcm = np.zeros(0, np.int16)
        self._recent: deque[Pcm] = deque()
        self._kept = 0
        "Samples of it."
        self._pad(300)
        self.samples = 0
        "Heard so far; the position of the next sample."

    def configure(self, turn_detection: TurnDetection | None, added_ms: float = 0) -> None:
        """None: push-to-talk. Starts are still found, for live words; nothing ends by itself.
        `added_ms`: by which sound comes later yet, from now on."""
        self._audible.late_ms = self._late_ms + added_ms
        detection = turn_detection or TurnDetection()
        silence_ms: float = detection.silence_ms
        self._eagerness = None
        if turn_detection is None:
            silence_ms = NEVER_MS
        elif detection.kind == "semantic_vad":
            self._eagerness = detection.eagerness
            silence_ms = endpoint_delay_ms(detection.eagerness, None)
        self._endpointer.threshold = detection.threshold
        self._endpointer.silence_ms = silence_ms
        self._endpointer.max_ms = NEVER_MS if turn_detection is None else MAX_UTTERANCE_MS
        self._pad(min(detection.prefix_padding_ms, MAX_PADDING_MS))

    def guard(self, is_guarded: bool) -> None:
        """While the assistant speaks, a start needs more speech."""
        self._endpointer.is_guarded = is_guarded

    def expect(self, probability: float | None, pause: int | None = None) -> None:
        """How likely the turn is over, as far as is known in this pause: it waits accordingly, and
        if it was longer already, ENDED comes with the next frame. May be called again when more is
        known. `pause`: the CANDIDATE's `at`, without effect when speech has resumed since.
        `server_vad` and push-to-talk do not care."""
        if self._eagerness is not None:
            self._endpointer.expect(endpoint_delay_ms(self._eagerness, probability), pause)

    @property
    def missing(self) -> int | None:
        """Samples of silence, after what was heard, with which the utterance ends: see
        `Endpointer.missing`."""
        return self._endpointer.missing

    @property
    def waiting(self) -> int:
        """Samples that came and are heard with the next frame: less than the VAD takes."""
        return len(self._rest)

    def suppose(self) -> SpeechEdge | None:
        """ENDED, as if that silence had been heard; None if more is missing."""
        return self._endpointer.suppose()

    def reset(self) -> None:
        """Forget a running utterance and what was heard before it."""
        self._endpointer.reset()
        self._forget()

    def push(self, frame: AudioFrame) -> Iterator[DetectedFrame]:
        """Raises RequestError on audio of another rate. Consume all of it."""
        if frame.rate_hz != ASR_RATE_HZ:
            raise RequestError(
                f"audio of {frame.rate_hz} Hz; the session listens at {ASR_RATE_HZ} Hz",
                code="invalid_audio_rate",
            )
        pcm = np.concatenate([self._rest, frame.pcm]) if len(self._rest) else frame.pcm
        size = self._vad.frame_samples
        whole = len(pcm) - len(pcm) % size
        self._rest = pcm[whole:]
        for offset in range(0, whole, size):
            yield self._hear(pcm[offset : offset + size])

    def recent(self) -> Pcm:
        """The audio just before now that no utterance has taken."""
        return np.concatenate(self._recent) if self._recent else np.zeros(0, np.int16)

    def _hear(self, pcm: Pcm) -> DetectedFrame:
        self.samples += len(pcm)
        was_in_speech = self._endpointer.in_speech
        probability = self._vad.push(pcm)
        edge = self._edge(pcm, probability)
        if edge is not None and edge.edge is EdgeKind.STARTED:
            self._remember(pcm)
            begin = edge.at - self._padding
            recent = self.recent()
            self._forget()
            self._audible.begin(edge.at, recent[edge.at - self.samples :])
            wanted = self.samples - begin
            return DetectedFrame(recent[-wanted:], edge, True, probability)
        if was_in_speech:
            return DetectedFrame(pcm, edge, True, probability)
        self._remember(pcm)
        return DetectedFrame(pcm, edge, False, probability)

    def _edge(self, pcm: Pcm, probability: float) -> SpeechEdge | None:
        endpointer, sound = self._endpointer, None
        if endpointer.in_speech:
            self._audible.push(pcm)
            if not endpointer.is_speech(probability):
                sound = self._audible.before(endpointer.speech_end)
        return endpointer.push(probability, len(pcm), sound)

    def _remember(self, pcm: Pcm) -> None:
        self._recent.append(pcm)
        self._kept += len(pcm)
        while self._kept - len(self._recent[0]) > self._wanted:
            self._kept -= len(self._recent.popleft())

    def _pad(self, padding_ms: float) -> None:
        """So much from before the speech is kept for it, and what makes it a start."""
        self._padding = ms_to_samples(padding_ms, ASR_RATE_HZ)
        self._wanted = ms_to_samples(padding_ms + 2 * INTERRUPT_MS, ASR_RATE_HZ)

    def _forget(self) -> None:
        self._recent.clear()
        self._kept = 0
