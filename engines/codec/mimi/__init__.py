"""Engine for Mimi, Kyutai's codec: 12.5 frames per second of up to 32 codebooks, causal, so that
sound can be made frame by frame.

transformers' model has the weights, and computes whole clips. Streams are computed by layers of our
own, whose state transformers does not keep.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from engines.codec.settings import CodecName, Settings, read_info

if TYPE_CHECKING:
    from engines.codec.torch_layers.segmented_codec import SegmentedCodec

__all__ = ["EXTRA", "REQUIRES", "Settings", "create"]

EXTRA = "torch"
REQUIRES = {"torch": "torch", "transformers": "transformers"}

NAME: CodecName = "mimi"


def create(settings: Settings) -> "SegmentedCodec":
    """Loads the model. Raises EngineMissing or EngineError if its folder cannot be used."""
    info = read_info(NAME, Path(settings.model).expanduser())
    from engines.codec.mimi.network import load
    from engines.codec.torch_layers.segmented_codec import SegmentedCodec, resolve_device

    network = load(Path(settings.model).expanduser(), resolve_device(settings))
    return SegmentedCodec(network, info, settings)
