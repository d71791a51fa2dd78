"""Our own voice, taken out of what a client without echo cancellation sends.

Stateful, one per session, no I/O. Positions (`at`) count the 16 kHz samples that came from the
client's microphone: the session's only clock. Nothing played: audio passes bit for bit.
"""

from typing import Protocol

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm
from media.processing.aec3 import EchoCanceller
from media.processing.echo_reference import ECHO_TAIL, EchoReference
from media.processing.modes import EchoMode


class EchoControl(Protocol):
    """What a session asks of either."""

    def play(self, pcm: Pcm, at: int) -> None:
        """The client is sent this, at position `at`; it plays it some time later."""
        ...

    def cut(self, at: int) -> None:
        """What was sent but lies behind `at` will not be played (for a client that holds it)."""
        ...

    def clean(self, pcm: Pcm, at: int) -> Pcm:
        """16 kHz audio from position `at` on -> as many samples without our voice."""
        ...

    def is_sounding(self, at: int) -> bool:
        """Our voice may be in the microphone: a start of speech deserves a second look."""
        ...


class NoEchoControl:
    """An `EchoControl` for clients that have none."""

    def play(self, pcm: Pcm, at: int) -> None:
        """See `EchoControl.play`."""

    def cut(self, at: int) -> None:
        """See `EchoControl.cut`."""

    def clean(self, pcm: Pcm, at: int) -> Pcm:
        """See `EchoControl.clean`."""
        return pcm

    def is_sounding(self, at: int) -> bool:
        """See `EchoControl.is_sounding`."""
        return False


class HalfDuplexEchoControl:
    """An `EchoControl` for hopeless clients: deaf while the answer sounds. Nobody can interrupt."""

    def __init__(self, rate_hz: int = ASR_RATE_HZ, *, is_paced: bool = True) -> None:
        """`rate_hz` of what is played; `is_paced`: it is sent at the pace it is played at."""
        self._reference = EchoReference(rate_hz, is_paced=is_paced)

    def play(self, pcm: Pcm, at: int) -> None:
        """See `EchoControl.play`."""
        self._reference.write(pcm, at)

    def cut(self, at: int) -> None:
        """See `EchoControl.cut`."""
        self._reference.cut(at)

    def clean(self, pcm: Pcm, at: int) -> Pcm:
        """See `EchoControl.clean`."""
        is_deaf = self._reference.sounds(at - ECHO_TAIL, at + len(pcm))
        return np.zeros_like(pcm) if is_deaf else pcm

    def is_sounding(self, at: int) -> bool:
        """See `EchoControl.is_sounding`."""
        return self._reference.sounds(at - ECHO_TAIL, at + 1)


def open_echo(mode: EchoMode, rate_hz: int, *, is_paced: bool) -> EchoControl:
    """One session's. `rate_hz` of what is played; `is_paced`: it is sent at the pace it is played
    at, not as fast as it is made."""
    if mode == "off":
        return NoEchoControl()
    if mode == "half_duplex":
        return HalfDuplexEchoControl(rate_hz, is_paced=is_paced)
    return EchoCanceller(rate_hz, is_paced=is_paced)
