"""Values and Protocols of codecs: models that turn sound into rows of small numbers and back.

A language model that speaks writes such numbers, and a codec makes sound of them while they come.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

Samples: TypeAlias = npt.NDArray[np.float32]
"Mono sound, -1 to 1, shape (samples,), at `CodecInfo.rate_hz`."

Codes: TypeAlias = npt.NDArray[np.int16]
"""Codes of one clip, shape (1, codebooks, frames), each 0 to `CodecInfo.codebook_size` - 1. The
first codebook is the coarsest; each further one corrects what the ones before it miss."""

CodecTask = Literal["encode", "decode"]
"Task of a codec: sound to codes, or codes to sound."


@dataclass(frozen=True, slots=True)
class CodecInfo:
    """Properties of a loaded codec."""

    name: str
    "Name of the engine."
    model: str
    "Name of the model that the engine has loaded."
    rate_hz: int
    "Sampling rate of the sound."
    frame_samples: int
    "Number of samples of one frame of codes."
    codebooks: tuple[int, ...]
    "Numbers of codebooks that it can be asked for, ascending."
    codebook_size: int
    "Number of different codes in each codebook."
    can_stream: bool = False
    "True: `CodecModel.open_streams` decodes frame by frame."
    max_batch: int = 8
    "Largest number of items in one call."
    is_incremental: bool = False
    "Always False: no state is kept between items. The scheduler reads it from every model."


@dataclass(frozen=True, slots=True)
class CodecItem:
    """One clip to encode or to decode, as it is sent to a worker."""

    task: CodecTask
    data: bytes
    """encode: little-endian int16 samples, mono, at `CodecInfo.rate_hz`. decode: little-endian
    int16 codes, all frames of the first codebook, then all frames of the next one."""
    codebooks: int
    "Number of codebooks of the codes, one of `CodecInfo.codebooks`."


@dataclass(frozen=True, slots=True)
class CodecResult:
    """The codes or the sound of one item."""

    data: bytes
    "Codes after `encode`, samples after `decode`, in the forms of `CodecItem.data`."


class DecodeStreams(Protocol):
    """Streams whose codes arrive frame by frame. One step computes a frame of many streams
    together, and its sound equals that of decoding the whole clip. Not safe for several threads."""

    capacity: int
    "Number of streams that may be open. Their memory is allocated once, when this is created."
    max_frames: int
    "Largest number of frames per stream in one step."

    def open(self) -> int:
        """Returns the id of a new stream. Raises OverloadedError when all `capacity` are open."""
        ...

    def step(self, frames: Mapping[int, npt.NDArray[np.integer]]) -> dict[int, Samples]:
        """Decodes the next frames of some of the open streams, and returns the sound of each.

        frames: id of a stream -> its codes, shape (codebooks, frames), the same for all streams of
        the call. A stream that is not named waits. The sound has frames * `frame_samples` samples.
        Raises ValueError for another shape, a code outside the codebook or an id that is not open.
        """
        ...

    def close(self, stream: int) -> None:
        """Ends a stream and drops its state. Does nothing for a stream that is not open."""
        ...


class CodecModel(Protocol):
    """Sound to codes and back, in batches. Its calls block, so it runs in a worker process."""

    info: CodecInfo
    "Properties of the loaded model."

    def encode(self, clips: Sequence[Samples], codebooks: int) -> list[Codes]:
        """Returns the codes of each clip, in their order. A clip that does not fill its last frame
        is encoded as if silence followed. `codebooks`: one of `info.codebooks`."""
        ...

    def decode(self, clips: Sequence[Codes]) -> list[Samples]:
        """Returns the sound of each clip, in their order, frames * `info.frame_samples` long. All
        clips have the same number of codebooks, one of `info.codebooks`."""
        ...

    def open_streams(self, capacity: int, *, max_frames: int = 1) -> DecodeStreams:
        """Allocates the memory of `capacity` streams and returns them, none of them open. Raises
        EngineError if the codec cannot decode frame by frame (`info.can_stream`)."""
        ...

    def close(self) -> None:
        """Frees the model. No other method may be called after it."""
        ...
