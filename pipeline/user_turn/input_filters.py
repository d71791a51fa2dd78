"""Filters between microphone and detector: the assistant's own voice is removed, and noise is made
quieter."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from core.audio import PTIME_MS, AudioFrame, Pcm, ms_to_samples
from media.processing.echo import open_echo
from media.processing.modes import EchoMode, NoiseMode
from media.processing.noise_suppression import open_noise_reduction
from pipeline.shared.settings import PlayoutPacing


class PlayoutState(Protocol):
    """State of the speaker for echo cancellation. Implemented by
    `pipeline.playout.playout.Playout`."""

    @property
    def paced_by(self) -> PlayoutPacing: ...

    @property
    def rate_hz(self) -> int: ...

    @property
    def is_audible(self) -> bool:
        """The user hears a response now."""
        ...

    @property
    def writer(self) -> object | None:
        """None: no response is played, and none is paused."""
        ...


class InputFilters:
    """Echo and noise filters of one session. `guard` is called for each frame, with True while the
    assistant is audible: a start of speech then needs more evidence."""

    def __init__(self, playout: PlayoutState, guard: Callable[[bool], None]) -> None:
        self._playout, self._guard = playout, guard
        self._is_paced = playout.paced_by == "server"
        self._mode: EchoMode = "off"
        self._echo = open_echo("off", playout.rate_hz, is_paced=self._is_paced)
        self._noise: NoiseMode = "off"
        self._reduction = open_noise_reduction("off")
        self._silence = np.zeros(ms_to_samples(PTIME_MS, playout.rate_hz), np.int16)
        self._fed = 0
        "Samples from the microphone so far."

    def configure(self, mode: EchoMode, noise: NoiseMode) -> None:
        """Sets the modes; a filter starts afresh only when its mode changes."""
        if mode != self._mode:
            self._mode = mode
            self._echo = open_echo(mode, self._playout.rate_hz, is_paced=self._is_paced)
        if noise != self._noise:
            self._noise = noise
            self._reduction = open_noise_reduction(noise)

    @property
    def late_ms(self) -> float:
        """Delay in ms that noise reduction adds to the audio. The echo canceller is not counted: it
        works only while something is played."""
        return self._reduction.late_ms

    def filter(self, frame: AudioFrame) -> AudioFrame:
        """Returns the microphone frame without echo and noise."""
        self._guard(self._playout.is_audible or self._echo.is_sounding(self._fed))
        pcm = self._echo.clean(frame.pcm, self._fed)
        self._fed += len(pcm)
        pcm = self._reduction.clean(pcm)
        return frame if pcm is frame.pcm else frame._replace(pcm=pcm)

    def on_pulled(self, frame: AudioFrame | None) -> AudioFrame | None:
        """Notes the frame that a server-paced speaker takes now; None while there is nothing to
        play. Returns the same frame."""
        if frame is not None:
            self._echo.play(frame.pcm, self._fed)
        elif self._playout.writer is not None:  # paused: the speaker plays silence
            self._echo.play(self._silence, self._fed)
        return frame

    def on_delivered(self, pcm: Pcm) -> None:
        """Notes sound that was sent to a client that plays it at its own pace."""
        self._echo.play(pcm, self._fed)

    def drop_unplayed(self) -> None:
        """Notes that sound which was sent but not played yet will not be played."""
        self._echo.cut(self._fed)
