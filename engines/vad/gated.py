"""The default VAD engine: WebRTC's detector is a cheap gate in front of Silero, which decides.

In a quiet room, mostly only the gate runs. It takes 0.14 to 0.25 ms of CPU per second of audio;
Silero takes 1.4 ms. Speech, music and loud noise cost as much as with Silero alone. When the gate
opens, Silero first gets the audio from before, so no decision is later than with Silero alone.
"""

from typing import Annotated

import numpy as np
from msgspec import Meta, Struct

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from engines.base import Vad
from engines.vad.silero import REQUIRES as SILERO_REQUIRES
from engines.vad.silero import SileroVad
from engines.vad.silero.layers import FRAME_SAMPLES as SILERO_SAMPLES
from engines.vad.silero.weights import SileroNetwork, load_network
from engines.vad.webrtc import FRAME_SAMPLES, WebrtcVad
from engines.vad.webrtc import REQUIRES as WEBRTC_REQUIRES
from engines.vad.webrtc import Settings as WebrtcSettings

REQUIRES = {**WEBRTC_REQUIRES, **SILERO_REQUIRES}

LEAD_SAMPLES = 10 * SILERO_SAMPLES
"Audio from before the gate opened that Silero gets first: its state needs 320 ms to settle."

KEEP_OPEN_PROBABILITY = 0.35
"Lowest probability of speech, by Silero, that keeps the gate open."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine `gated`."""

    aggressiveness: Annotated[int, Meta(ge=0, le=3)] = 2
    "Aggressiveness of the gate, 0 to 3. At 3 it opens least often, and misses speech at -64 dBFS."
    hangover_ms: Annotated[int, Meta(ge=100, le=5000)] = 1000
    """Time in ms that the gate stays open after the last speech. At 600 the start of a few words is
    detected 0.4 s late."""
    path: str | None = None
    "Path of another silero_vad_v6.onnx; None: the one inside faster-whisper."


class GatedVad:
    """A `Vad` with a gate. It returns Silero's latest probability, or 0 while the gate is closed.

    Silero takes 32 ms at a time, the gate 20 ms.
    """

    frame_samples = FRAME_SAMPLES
    _silero_input: Pcm
    "Audio for Silero: less than one of its frames while open, the last LEAD_SAMPLES while closed."
    _open_samples: int
    "Samples until the gate closes; 0 or less: it is closed."
    _probability: float

    def __init__(self, gate: WebrtcVad, silero: SileroVad, hangover_samples: int) -> None:
        self._gate, self._silero, self._hangover = gate, silero, hangover_samples
        self.reset()

    def push(self, pcm: Pcm) -> float:
        """Returns the probability of speech in the next frame (see `Vad.push`)."""
        self._silero_input = np.concatenate([self._silero_input, pcm])
        if self._gate.is_voiced(pcm) or self._probability >= KEEP_OPEN_PROBABILITY:
            self._open_samples = self._hangover
        if self._open_samples <= 0:
            self._silero_input = self._silero_input[-LEAD_SAMPLES:]
            return 0.0
        self._open_samples -= len(pcm)
        while len(self._silero_input) >= SILERO_SAMPLES:
            self._probability = self._silero.push(self._silero_input[:SILERO_SAMPLES])
            self._silero_input = self._silero_input[SILERO_SAMPLES:]
        if self._open_samples <= 0:  # the gate closes: the next sound starts with a fresh state
            self._silero.reset()
            self._probability = 0.0
        return self._probability

    def reset(self) -> None:
        """Clears the state (see `Vad.reset`)."""
        self._gate.reset()
        self._silero.reset()
        self._silero_input = np.zeros(0, np.int16)
        self._open_samples = 0
        self._probability = 0.0


class GatedVadEngine:
    """A `VadEngine` for `GatedVad`; all sessions share Silero's weights."""

    name = "gated"

    def __init__(self, network: SileroNetwork, settings: Settings) -> None:
        self._network = network
        self._gate_settings = WebrtcSettings(aggressiveness=settings.aggressiveness)
        self._hangover_samples = ms_to_samples(settings.hangover_ms, ASR_RATE_HZ)

    def open(self) -> Vad:
        """Returns a detector for one stream."""
        gate, silero = WebrtcVad(self._gate_settings), SileroVad(self._network)
        return GatedVad(gate, silero, self._hangover_samples)


def create(settings: Settings) -> GatedVadEngine:
    """Returns the engine. Raises EngineMissing without weights."""
    import webrtcvad  # noqa: F401  a missing library fails now, not in the first session

    return GatedVadEngine(load_network(settings.path), settings)
