"""Removes the assistant's own voice from the microphone of a client without echo cancellation.

Stateful, one object per session, no I/O. Positions count the 16 kHz samples that came from the
client's microphone: this is the session's only clock. While nothing is played, audio passes
unchanged bit for bit.
"""

from typing import Protocol

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm
from media.processing.aec3 import EchoCanceller
from media.processing.echo_reference import ECHO_TAIL_SAMPLES, EchoReference
from media.processing.modes import EchoMode


class EchoControl(Protocol):
    """Echo control of one session, in any mode.

    Example:
        echo = open_echo("cancel", 24_000, is_paced=True)
        echo.play(answer, position)               # int16 at 24 kHz, sent to the client now
        cleaned = echo.clean(microphone, position)    # int16 at 16 kHz, as many samples
    """

    def play(self, pcm: Pcm, position: int) -> None:
        """Takes audio that is sent to the client at `position`; the client plays it some time
        later. `pcm`: int16, mono, at the rate given to `open_echo`."""
        ...

    def cut(self, position: int) -> None:
        """Notes that the client will not play what was sent for after `position`. For a client that
        holds audio."""
        ...

    def clean(self, pcm: Pcm, position: int) -> Pcm:
        """Returns as many samples without the assistant's voice. `pcm`: int16, 16 kHz, mono.
        `position`: that of its first sample."""
        ...

    def is_sounding(self, position: int) -> bool:
        """True if the assistant's voice may be in the microphone at `position`. Then a start of
        speech must be examined more closely."""
        ...


class NoEchoControl:
    """An `EchoControl` that changes nothing, for clients without echo."""

    def play(self, pcm: Pcm, position: int) -> None:
        """See `EchoControl.play`."""

    def cut(self, position: int) -> None:
        """See `EchoControl.cut`."""

    def clean(self, pcm: Pcm, position: int) -> Pcm:
        """See `EchoControl.clean`."""
        return pcm

    def is_sounding(self, position: int) -> bool:
        """See `EchoControl.is_sounding`."""
        return False


class HalfDuplexEchoControl:
    """An `EchoControl` that ignores the microphone while the answer sounds, for clients whose echo
    cannot be cancelled. The user cannot interrupt."""

    def __init__(self, rate_hz: int = ASR_RATE_HZ, *, is_paced: bool = True) -> None:
        """Creates the control. `rate_hz`: rate of what is played. `is_paced`: audio is sent at the
        pace at which it is played."""
        self._reference = EchoReference(rate_hz, is_paced=is_paced)

    def play(self, pcm: Pcm, position: int) -> None:
        """See `EchoControl.play`."""
        self._reference.write(pcm, position)

    def cut(self, position: int) -> None:
        """See `EchoControl.cut`."""
        self._reference.cut(position)

    def clean(self, pcm: Pcm, position: int) -> Pcm:
        """See `EchoControl.clean`."""
        is_muted = self._reference.sounds(position - ECHO_TAIL_SAMPLES, position + len(pcm))
        return np.zeros_like(pcm) if is_muted else pcm

    def is_sounding(self, position: int) -> bool:
        """See `EchoControl.is_sounding`."""
        return self._reference.sounds(position - ECHO_TAIL_SAMPLES, position + 1)


def open_echo(mode: EchoMode, rate_hz: int, *, is_paced: bool) -> EchoControl:
    """Creates the echo control of one session. `rate_hz`: rate of what is played. `is_paced`: audio
    is sent at the pace at which it is played, not as fast as it is made."""
    if mode == "off":
        return NoEchoControl()
    if mode == "half_duplex":
        return HalfDuplexEchoControl(rate_hz, is_paced=is_paced)
    return EchoCanceller(rate_hz, is_paced=is_paced)
