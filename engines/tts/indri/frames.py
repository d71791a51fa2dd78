"""Order of the codes in the stream of ids that the model writes.

A frame is one code of each codebook, 80 ms of sound. Frames follow each other: codebook 0 to 7,
codebook 0 to 7. The end of the speech comes where a frame would begin.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from engines.tts.indri.token_layout import CODEBOOK_SIZE, CODEBOOKS, TokenLayout

Frames = npt.NDArray[np.int16]
"Codes of the codec, shape (CODEBOOKS, frames)."


def codebook_at(position: int) -> int:
    """Returns the codebook of the id at `position`, which counts the ids of the speech from 0."""
    return position % CODEBOOKS


def may_stop(position: int) -> bool:
    """Returns True if the speech may end instead of an id at `position`."""
    return codebook_at(position) == 0


def pack(frames: npt.NDArray[np.integer], layout: TokenLayout) -> list[int]:
    """Returns the ids of whole frames, shape (CODEBOOKS, frames). Raises ValueError."""
    if frames.ndim != 2 or len(frames) != CODEBOOKS:
        raise ValueError(f"frames have the shape {frames.shape}; allowed: ({CODEBOOKS}, frames)")
    if frames.size and not 0 <= frames.min() <= frames.max() < CODEBOOK_SIZE:
        raise ValueError(f"codes are 0 to {CODEBOOK_SIZE - 1}")
    firsts = [layout.first_code(codebook) for codebook in range(CODEBOOKS)]
    ids: list[int] = (frames.T.astype(np.int64) + np.array(firsts)).flatten().tolist()
    return ids


def unpack(ids: Iterable[int], layout: TokenLayout) -> Frames:
    """Returns the frames of a speech. Its end, and an incomplete frame before it, are left out.
    Raises ValueError for an id that is not of the codebook whose turn it is."""
    stream = FrameStream(layout)
    for one in ids:
        if stream.push(one):
            break
    return stream.take(stream.frames)


class FrameStream:
    """Turns the ids of one speech into frames while they arrive."""

    def __init__(self, layout: TokenLayout) -> None:
        self._layout = layout
        self._codes: list[int] = []
        "Codes that were not taken yet."
        self._ids = 0
        "Number of all ids so far."

    @property
    def frames(self) -> int:
        """Number of whole frames that can be taken."""
        return len(self._codes) // CODEBOOKS

    def push(self, new_id: int) -> bool:
        """Takes the next id. Returns True if it ends the speech. Raises ValueError for an id that
        is not of the codebook whose turn it is."""
        if new_id == self._layout.stop and may_stop(self._ids):
            return True
        codebook = codebook_at(self._ids)
        code = new_id - self._layout.first_code(codebook)
        if not 0 <= code < CODEBOOK_SIZE:
            raise ValueError(f"id {new_id} at position {self._ids} is not of codebook {codebook}")
        self._codes.append(code)
        self._ids += 1
        return False

    def take(self, frames: int) -> Frames:
        """Removes and returns the oldest frames; `frames`: at most as many as there are."""
        count = min(frames, self.frames) * CODEBOOKS
        taken, self._codes = self._codes[:count], self._codes[count:]
        return np.array(taken, np.int16).reshape(-1, CODEBOOKS).T
