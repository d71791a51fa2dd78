"""Engine for EnCodec, Meta's codec at 24 kHz: 75 frames per second of up to 32 codebooks.

It pads the start of a clip with a mirror of what follows, so it cannot decode frame by frame.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from engines.codec.settings import CodecName, Settings, read_info

if TYPE_CHECKING:
    from engines.codec.torch_layers.segmented_codec import SegmentedCodec

__all__ = ["EXTRA", "REQUIRES", "Settings", "create"]

EXTRA = "torch"
REQUIRES = {"torch": "torch", "transformers": "transformers"}

NAME: CodecName = "encodec"


def create(settings: Settings) -> "SegmentedCodec":
    """Loads the model. Raises EngineMissing or EngineError if its folder cannot be used."""
    info = read_info(NAME, Path(settings.model).expanduser())
    from engines.codec.encodec.network import load
    from engines.codec.torch_layers.segmented_codec import SegmentedCodec, resolve_device

    network = load(Path(settings.model).expanduser(), resolve_device(settings))
    return SegmentedCodec(network, info, settings)
