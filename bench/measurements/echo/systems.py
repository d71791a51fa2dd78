"""Compared echo cancellers: Earshot's, its parts, and other libraries if they are installed."""

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm
from media.processing.aec3 import BLOCK_SAMPLES, EchoCanceller
from media.processing.echo import EchoControl, HalfDuplexEchoControl, NoEchoControl
from media.processing.echo_reference import EchoReference

FILTER = ASR_RATE_HZ * 4 // 10
"Length of a filter that does not search for the delay: 400 ms, in samples."

Process = Callable[[Pcm, Pcm], Pcm]
"Function from microphone and reference of the same 20 ms to the cleaned audio."


class LibraryCanceller(HalfDuplexEchoControl):
    """A library's canceller alone, without Earshot's own decisions."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process
        self._sent = EchoReference(ASR_RATE_HZ, is_paced=True)

    def play(self, pcm: Pcm, at: int) -> None:
        super().play(pcm, at)
        self._sent.write(pcm, at)

    def clean(self, pcm: Pcm, at: int) -> Pcm:
        return self._process(pcm, self._sent.read(at, at + len(pcm)))


def _webrtc() -> EchoControl:
    return LibraryCanceller(import_module("pywebrtc_audio").EchoCanceller(ASR_RATE_HZ).process)


def _livekit() -> EchoControl:
    rtc = import_module("livekit.rtc")
    module = rtc.AudioProcessingModule(echo_cancellation=True)

    def frame(pcm: Pcm) -> Any:
        return rtc.AudioFrame(bytearray(pcm.tobytes()), ASR_RATE_HZ, 1, len(pcm))

    def block(near: Pcm, far: Pcm) -> Pcm:
        module.process_reverse_stream(frame(far))
        module.set_stream_delay_ms(0)
        heard = frame(near)
        module.process_stream(heard)
        return np.frombuffer(bytes(heard.data), np.int16)

    return LibraryCanceller(_in_blocks(block))


def _speex() -> EchoControl:
    canceller = import_module("pyaec").Aec(BLOCK_SAMPLES, FILTER, ASR_RATE_HZ, True)

    def block(near: Pcm, far: Pcm) -> Pcm:
        return np.array(canceller.cancel_echo(near, far), np.int16)

    return LibraryCanceller(_in_blocks(block))


def _in_blocks(block: Process) -> Process:
    def process(near: Pcm, far: Pcm) -> Pcm:
        cuts = range(0, len(near), BLOCK_SAMPLES)
        return np.concatenate(
            [block(near[at : at + BLOCK_SAMPLES], far[at : at + BLOCK_SAMPLES]) for at in cuts]
        )

    return process


def systems() -> Mapping[str, Callable[[], EchoControl]]:
    """Returns the cancellers by their names in the table, without libraries that are not
    installed."""
    found: dict[str, Callable[[], EchoControl]] = {
        "nothing": NoEchoControl,
        "half duplex": HalfDuplexEchoControl,
        "EchoCanceller": EchoCanceller,
        "pywebrtc-audio alone": _webrtc,
    }
    if find_spec("livekit") is not None:
        found["livekit alone"] = _livekit
    if find_spec("pyaec") is not None:
        found["pyaec (Speex) alone"] = _speex
    return found
