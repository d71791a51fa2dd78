"""Reads the weights out of a checkpoint in torch's old format, without torch, once after the
download.

The file is a row of pickles with the numbers behind them. A pickle may run any code, so this
unpickler knows only the three names that a table of tensors needs. What stands for a tensor is
filled with its numbers later.
"""

import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from core.errors import EngineError
from engines.speaker.ge2e.network import WEIGHTS_FILE, Ge2eNetwork

Floats = npt.NDArray[np.float32]

HEADER_PICKLES = 3
"Pickles before the table: a magic number, the version of the format, facts about the machine."

MAGIC = 0x1950A86A20F9469CFC6C
"First pickle of a file in this format."

STATE = "model_state"
"Key of the network's tensors. The file also has the optimiser's, which nobody needs."

USED = ("lstm.", "linear.")
"Beginnings of the names of the tensors that computing needs."

PICKLE_ERRORS = (
    *(pickle.UnpicklingError, EOFError, struct.error, ValueError, TypeError),
    *(AttributeError, LookupError),
)
"Errors that a damaged pickle causes."

_COUNT = struct.Struct("<q")
"Number of values, before the values of each storage."


@dataclass(frozen=True, slots=True)
class _StorageEntry:
    """A row of numbers that several tensors may share."""

    key: str
    size: int


@dataclass(frozen=True, slots=True)
class _StorageView:
    """A view of a storage."""

    storage: _StorageEntry
    offset: int
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape))


class _TensorUnpickler(pickle.Unpickler):
    """Reads tables of tensors, and refuses everything else."""

    def find_class(self, module: str, name: str) -> Any:
        """Returns our class or function for a name in the pickle. Raises UnpicklingError for any
        name but the three."""
        known: Mapping[tuple[str, str], Callable[..., object]] = {
            ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor,
            ("torch", "FloatStorage"): _StorageEntry,
            ("collections", "OrderedDict"): OrderedDict,
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no table of tensors has")
        return known[module, name]

    def persistent_load(self, pid: Any) -> _StorageEntry:
        """Returns what stands for a storage."""
        match pid:
            case ("storage", kind, str(key), _, int(size), *_) if (
                kind is _StorageEntry and size >= 0
            ):
                return _StorageEntry(key, size)
        raise pickle.UnpicklingError("it refers to something that is no storage of float32")


def convert_checkpoint(checkpoint: Path, folder: Path) -> None:
    """Writes the weights of a checkpoint into `folder` as `WEIGHTS_FILE`. Raises EngineError if it
    is no checkpoint of GE2E."""
    try:
        with checkpoint.open("rb") as file:
            arrays = _read_arrays(file)
    except PICKLE_ERRORS as error:
        why = f"{checkpoint.name} is no checkpoint of GE2E: {error}"
        raise EngineError("speaker", "ge2e", why) from error
    Ge2eNetwork(arrays)  # the shapes fit together
    entries: dict[str, Any] = dict(arrays)  # else the types would fit no keyword of savez
    np.savez(folder / WEIGHTS_FILE, **entries)


def _read_arrays(file: BinaryIO) -> dict[str, Floats]:
    header = [_TensorUnpickler(file).load() for _ in range(HEADER_PICKLES)]
    if header[0] != MAGIC:
        raise pickle.UnpicklingError("it is not in torch's old format")
    table, keys = _TensorUnpickler(file).load(), _TensorUnpickler(file).load()
    state = table.get(STATE) if isinstance(table, dict) else None
    if not isinstance(state, dict):
        raise pickle.UnpicklingError(f"it has no table {STATE}")
    values = _read_storages(file, keys)
    return {
        name: _array(tensor, values)
        for name, tensor in state.items()
        if isinstance(tensor, _StorageView) and name.startswith(USED)
    }


def _read_storages(file: BinaryIO, keys: Sequence[str]) -> dict[str, Floats]:
    storages = {}
    for key in keys:
        (count,) = _COUNT.unpack(file.read(_COUNT.size))
        data = file.read(4 * count)
        storages[key] = np.frombuffer(data, "<f4", count).astype(np.float32)
    return storages


def _array(tensor: _StorageView, storages: Mapping[str, Floats]) -> Floats:
    values = storages.get(tensor.storage.key)
    if values is None or tensor.offset + tensor.size > len(values):
        raise pickle.UnpicklingError("a tensor lies outside of its storage")
    return values[tensor.offset : tensor.offset + tensor.size].reshape(tensor.shape)


def _rebuild_tensor(
    storage: object, offset: object, shape: object, strides: object, *_: object
) -> _StorageView:
    """Takes the place of torch's function. It knows only whole tensors, as a saved network has
    them."""
    match storage, offset, shape, strides:
        case _StorageEntry(), int(), tuple(), tuple():
            assert isinstance(shape, tuple)
            whole = tuple(int(np.prod(shape[index + 1 :])) for index in range(len(shape)))
            if offset >= 0 and strides == whole:
                return _StorageView(storage, offset, shape)
    raise pickle.UnpicklingError("it has a tensor that is a part of another")
