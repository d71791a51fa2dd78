"""Silero VAD v6: a small recurrent network that tells voices from other sounds, even music.

The weights come inside the faster-whisper wheel (Silero VAD is MIT-licensed). numpy runs them: for
a network of this size onnxruntime takes twice as long (docs/adr/0039).
"""

from msgspec import Struct

from core.audio import Pcm
from engines.base import Vad
from engines.vad.silero.layers import FRAME_SAMPLES, ConvolutionStack, LstmLayer, SpectrumLayer
from engines.vad.silero.weights import SileroNetwork, load_network

REQUIRES = {"faster_whisper": "faster-whisper", "threadpoolctl": "threadpoolctl"}


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    path: str | None = None
    "Another silero_vad_v6.onnx; None uses the one inside faster-whisper."


class SileroVad:
    """A `Vad`. The network is shared; the state and the room to compute in (30 kB) are this
    stream's, for one thread at a time."""

    frame_samples = FRAME_SAMPLES

    def __init__(self, network: SileroNetwork) -> None:
        self._spectra = SpectrumLayer(network.window)
        self._convolutions = ConvolutionStack(network.convolutions)
        self._memory = LstmLayer(network)

    def push(self, pcm: Pcm) -> float:
        """See `Vad.push`."""
        self._spectra.push(pcm, self._convolutions.magnitudes)
        self._convolutions.run(self._memory.taken)
        return self._memory.run()

    def reset(self) -> None:
        """See `Vad.reset`."""
        self._spectra.audio[:] = 0
        self._memory.forget()


class SileroVadEngine:
    """A `VadEngine`."""

    name = "silero"

    def __init__(self, network: SileroNetwork) -> None:
        self._network = network

    def open(self) -> Vad:
        return SileroVad(self._network)


def create(settings: Settings) -> SileroVadEngine:
    """Raises EngineMissing when there are no weights."""
    return SileroVadEngine(load_network(settings.path))
