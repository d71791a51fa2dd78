"""Engine for Silero VAD v6: a small recurrent network that distinguishes voices from other sounds,
even from music.

The weights come inside the faster-whisper wheel (Silero VAD is MIT-licensed). numpy computes the
network: onnxruntime takes twice as long for one of this size (docs/adr/0039).
"""

from msgspec import Struct

from core.audio import Pcm
from engines.base import Vad
from engines.vad.silero.layers import FRAME_SAMPLES, ConvolutionStack, LstmLayer, SpectrumLayer
from engines.vad.silero.weights import SileroNetwork, load_network

REQUIRES = {"faster_whisper": "faster-whisper", "threadpoolctl": "threadpoolctl"}


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the engine `silero`."""

    path: str | None = None
    "Path of another silero_vad_v6.onnx; None: the one inside faster-whisper."


class SileroVad:
    """A `Vad` for one stream, used by one thread at a time.

    The weights are shared with other streams; the state and the working memory (30 kB) are not.
    """

    frame_samples = FRAME_SAMPLES

    def __init__(self, network: SileroNetwork) -> None:
        self._spectra = SpectrumLayer(network.window)
        self._convolutions = ConvolutionStack(network.convolutions)
        self._lstm = LstmLayer(network)

    def push(self, pcm: Pcm) -> float:
        """Returns the probability of speech in the next frame (see `Vad.push`)."""
        self._spectra.push(pcm, self._convolutions.magnitudes)
        self._convolutions.run(self._lstm.inputs)
        return self._lstm.run()

    def reset(self) -> None:
        """Clears the state (see `Vad.reset`)."""
        self._spectra.audio[:] = 0
        self._lstm.reset()


class SileroVadEngine:
    """A `VadEngine` for `SileroVad`."""

    name = "silero"

    def __init__(self, network: SileroNetwork) -> None:
        self._network = network

    def open(self) -> Vad:
        """Returns a detector for one stream."""
        return SileroVad(self._network)


def create(settings: Settings) -> SileroVadEngine:
    """Returns the engine. Raises EngineMissing without weights."""
    return SileroVadEngine(load_network(settings.path))
