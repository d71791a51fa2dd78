"""Detects speech edges in microphone frames, by VAD and endpointer, and returns them with their
audio. Stateful, one per session; no I/O."""

from collections import deque
from collections.abc import Iterator
from math import sqrt
from typing import NamedTuple

import numpy as np

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, ms_to_samples
from core.errors import RequestError
from engines.base import Vad
from pipeline.shared.settings import TurnDetection
from pipeline.user_turn.speech_detection.endpointing import (
    INTERRUPT_MS,
    MAX_UTTERANCE_MS,
    Eagerness,
    EdgeKind,
    Endpointer,
    SpeechEdge,
    endpoint_delay_ms,
)
from pipeline.user_turn.speech_detection.speech_offset import SpeechOffset

MAX_PADDING_MS = 2000
"Longest pre-roll before speech. Older audio belongs to another utterance."
FAINT_MS = 3000
"""Longest sound that is decoded although it came before the VAD noticed speech. If speech is soft,
hoarse or distant, a VAD may miss its first clause, which a recogniser understands."""
FAINT_GAP_MS = 1000
"""Longest quiet moment within such sound: a pause within a sentence, as for utterances that are
joined. Sound before it is another sound."""
FAINT_ABOVE_FLOOR_DB = 6
"Distance of such sound above the quietest recent moments. Steady noise stays below it."
FAINT_LEAST_RMS = 1.0
"Least RMS of such sound in sample values. Below is a converter's own noise."
LOUD_RMS = 300.0
"""RMS in sample values of the loudest recent frame, from which on the VAD gets the sound as it is.
Speech with a peak of -30 dBFS has about this, and the VAD finds it as well as louder speech."""
MOST_GAIN = 10.0
"Largest factor for fainter sound for the VAD. Speech with a peak of -50 dBFS needs all of it."
LEVEL_MS = 3000
"""Time for which a loud frame keeps the gain down. It is longer than a pause within a turn, so that
no sound of a pause is amplified."""
NEVER_MS = 1e12
"Silence in ms that never passes: nothing ends by itself, because the client commits."


_LEVEL = ms_to_samples(20, ASR_RATE_HZ)
"Samples over which a level is measured."


def faint_start(pcm: Pcm, speech: int) -> int:
    """Returns the sample of `pcm` at which the sound begins that leads up to sample `speech`, where
    the VAD noticed it; `speech` itself if it was quiet before. At most `FAINT_MS` before it."""
    count = min(speech, ms_to_samples(FAINT_MS, ASR_RATE_HZ)) // _LEVEL
    if not count:
        return speech
    begin = speech - count * _LEVEL
    # The difference of samples has no hum and rumble in it.
    steps = np.diff(pcm[begin:speech].astype(np.float32), prepend=np.float32(pcm[begin]))
    power = np.mean(steps.reshape(count, _LEVEL) ** 2, axis=1)
    floor = max(float(np.percentile(power, 10)), FAINT_LEAST_RMS**2)
    audible = np.flatnonzero(power > floor * 10 ** (FAINT_ABOVE_FLOOR_DB / 10))
    first = count
    for at in reversed(audible):
        if (first - at) * _LEVEL > ms_to_samples(FAINT_GAP_MS, ASR_RATE_HZ):
            break
        first = int(at)
    return begin + first * _LEVEL


class FaintSoundGain:
    """Amplifies faint sound for the VAD, which misses soft voices. Nothing else gets the result.

    The loudest frame of the last `LEVEL_MS` decides, so that loud sound and its pauses stay as they
    are. Steady noise does not become speech by this: a VAD ignores it at any level.
    """

    def __init__(self) -> None:
        self._powers = deque[float]()
        """Mean square of each recent frame that no later one exceeds: the first is that of the
        loudest."""
        self._ends = deque[int]()
        "Sample one past each of these frames."
        self._samples = 0

    def push(self, pcm: Pcm, *, is_off: bool) -> Pcm:
        """Takes the next frame; returns it with the gain for the recent level. `is_off`: returns
        the frame itself."""
        samples = pcm.astype(np.float32)
        self._take(float(samples @ samples) / len(pcm), len(pcm))
        loudest = self._powers[0]
        if is_off or not 0 < loudest < LOUD_RMS**2:
            return pcm
        # No frame is louder than the loudest, so no sample can overflow.
        gain = min(MOST_GAIN, LOUD_RMS / sqrt(loudest))
        return (samples * np.float32(gain)).astype(np.int16)

    def _take(self, power: float, samples: int) -> None:
        self._samples += samples
        while self._powers and self._powers[-1] <= power:
            self._powers.pop()
            self._ends.pop()
        self._powers.append(power)
        self._ends.append(self._samples)
        if self._samples - self._ends[0] >= ms_to_samples(LEVEL_MS, ASR_RATE_HZ):
            self._powers.popleft()
            self._ends.popleft()


class DetectedFrame(NamedTuple):
    """One VAD frame, or at a start the pre-roll and all audio since. A tuple for speed, like
    `AudioFrame`."""

    pcm: Pcm
    edge: SpeechEdge | None
    in_speech: bool
    "True if `pcm` belongs to an utterance, including the frame that ends it."
    probability: float
    "VAD probability, 0 to 1, of the last frame."


class SpeechDetector:
    """Runs the VAD over the microphone's audio and finds the starts, pauses and ends of speech.

    Example:

        for detected in detector.push(frame):
            if detected.edge is not None:
                ...  # speech started, paused, resumed or ended
    """

    def __init__(self, vad: Vad, late_ms: float = 0) -> None:
        """`late_ms`: minimum age of the audio when it arrives (delay of the codec), in ms."""
        self._vad, self._late_ms = vad, late_ms
        self._gain = FaintSoundGain()
        self._has_noise_reduction = False
        self._endpointer = Endpointer()
        self._speech_offset = SpeechOffset(late_ms)
        self._eagerness: Eagerness | None = None
        "Set for `semantic_vad`: the delay may change within a pause."
        self._rest: Pcm = np.zeros(0, np.int16)
        self._recent: deque[Pcm] = deque()
        self._recent_samples = 0
        "Number of samples in `_recent`."
        self._set_padding(300)
        self.samples = 0
        "Samples judged so far; also the position of the next one."

    def configure(
        self,
        turn_detection: TurnDetection | None,
        added_ms: float = 0,
        *,
        has_noise_reduction: bool = False,
    ) -> None:
        """Applies the settings. None: push to talk; starts are still found, for partial
        transcripts, but nothing ends by itself. `added_ms`: further delay of the audio from now on,
        from noise reduction. `has_noise_reduction`: faint sound may be what is left of the noise,
        so it is not amplified."""
        self._speech_offset.late_ms = self._late_ms + added_ms
        self._has_noise_reduction = has_noise_reduction
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
        self._set_padding(min(detection.prefix_padding_ms, MAX_PADDING_MS))

    def guard(self, is_guarded: bool) -> None:
        """Sets whether the assistant is audible: a start then needs more speech."""
        self._endpointer.is_guarded = is_guarded

    def set_delay(self, probability: float | None, pause: int | None = None) -> None:
        """Sets the endpointing delay of the present pause from the probability (0 to 1) that the
        turn is over. If the pause is already longer, ENDED comes with the next frame. May be called
        again when more is known.

        `pause`: the CANDIDATE's `at`; no effect when speech has resumed since. No effect with
        `server_vad` and push to talk.
        """
        if self._eagerness is not None:
            self._endpointer.set_delay(endpoint_delay_ms(self._eagerness, probability), pause)

    @property
    def missing_samples(self) -> int | None:
        """Samples of silence that are still missing for the endpoint: see
        `Endpointer.missing_samples`."""
        return self._endpointer.missing_samples

    @property
    def unjudged_samples(self) -> int:
        """Samples that arrived but wait for the rest of their VAD frame."""
        return len(self._rest)

    def end_early(self) -> SpeechEdge | None:
        """Ends the utterance as if the missing silence had passed. Returns ENDED, or None if more
        is missing."""
        return self._endpointer.end_early()

    def reset(self, kept: Pcm | None = None) -> None:
        """Forgets a running utterance and the audio before it. `kept`: the newest audio, which may
        belong to the next utterance."""
        self._endpointer.reset()
        self._forget()
        if kept is not None and len(kept):
            self._remember(kept)

    def push(self, frame: AudioFrame) -> Iterator[DetectedFrame]:
        """Yields the VAD frames that are complete with `frame`; the caller must consume all of
        them. Raises RequestError when the audio is not 16 kHz."""
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
            yield self._detect(pcm[offset : offset + size])

    def recent(self) -> Pcm:
        """Returns the newest audio that belongs to no utterance."""
        return np.concatenate(self._recent) if self._recent else np.zeros(0, np.int16)

    def _detect(self, pcm: Pcm) -> DetectedFrame:
        """Runs the VAD over one frame, and finds its edge."""
        self.samples += len(pcm)
        was_in_speech = self._endpointer.in_speech
        # While the assistant is audible, faint sound is what is left of its echo.
        is_off = self._endpointer.is_guarded or self._has_noise_reduction
        heard = self._gain.push(pcm, is_off=is_off)
        probability = self._vad.push(heard)
        edge = self._edge(pcm, probability)
        if edge is not None and edge.kind is EdgeKind.STARTED:
            self._remember(pcm)
            recent = self.recent()
            first = self.samples - len(recent)
            # While the assistant is audible, sound before the speech is the assistant's.
            is_alone = not self._endpointer.is_guarded
            faint = first + faint_start(recent, edge.at - first) if is_alone else edge.at
            begin = faint - self._padding
            self._forget()
            self._speech_offset.begin(edge.at, recent[edge.at - self.samples :])
            wanted = self.samples - begin
            return DetectedFrame(recent[-wanted:], edge, True, probability)
        if was_in_speech:
            return DetectedFrame(pcm, edge, True, probability)
        self._remember(pcm)
        return DetectedFrame(pcm, edge, False, probability)

    def _edge(self, pcm: Pcm, probability: float) -> SpeechEdge | None:
        endpointer, sound = self._endpointer, None
        if endpointer.in_speech:
            self._speech_offset.push(pcm)
            if not endpointer.is_speech(probability):
                sound = self._speech_offset.before(endpointer.speech_end)
        return endpointer.push(probability, len(pcm), sound)

    def _remember(self, pcm: Pcm) -> None:
        self._recent.append(pcm)
        self._recent_samples += len(pcm)
        most = self._max_recent_samples
        if not self._endpointer.is_guarded:
            most += ms_to_samples(FAINT_MS, ASR_RATE_HZ)
        while self._recent_samples - len(self._recent[0]) > most:
            self._recent_samples -= len(self._recent.popleft())

    def _set_padding(self, padding_ms: float) -> None:
        """Sets how much audio before the speech is kept, faint sound apart: the pre-roll, and the
        speech that makes a start."""
        self._padding = ms_to_samples(padding_ms, ASR_RATE_HZ)
        self._max_recent_samples = ms_to_samples(padding_ms + 2 * INTERRUPT_MS, ASR_RATE_HZ)

    def _forget(self) -> None:
        self._recent.clear()
        self._recent_samples = 0
