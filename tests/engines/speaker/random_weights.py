"""Weights of a GE2E network as small as a test wants it: random numbers, which know no voice."""

import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from engines.speaker.ge2e.checkpoint import MAGIC
from engines.speaker.ge2e.network import WEIGHTS_FILE
from engines.speaker.ge2e.speech import MELS

Floats = npt.NDArray[np.float32]


def random_arrays(hidden: int = 8, layers: int = 3, seed: int = 0) -> dict[str, Floats]:
    """Returns arrays by torch's names."""
    random = np.random.default_rng(seed)

    def array(*shape: int) -> Floats:
        return random.normal(0, 0.4, shape).astype(np.float32)

    arrays = {"linear.weight": array(hidden, hidden), "linear.bias": array(hidden) + 1}
    for index in range(layers):
        inputs = hidden if index else MELS
        arrays[f"lstm.weight_ih_l{index}"] = array(4 * hidden, inputs)
        arrays[f"lstm.weight_hh_l{index}"] = array(4 * hidden, hidden)
        arrays[f"lstm.bias_ih_l{index}"] = array(4 * hidden)
        arrays[f"lstm.bias_hh_l{index}"] = array(4 * hidden)
    return arrays


def write_random_model(folder: Path, seed: int = 0) -> Path:
    """Writes a model that can be loaded, and returns its folder."""
    folder.mkdir(parents=True, exist_ok=True)
    arrays: dict[str, Any] = dict(random_arrays(seed=seed))
    np.savez(folder / WEIGHTS_FILE, **arrays)
    return folder


class _Rebuild:
    """Pickles as a call of a function that the reader finds by its name."""

    def __init__(self, name: str, *arguments: object) -> None:
        self._name, self._arguments = name, arguments

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return _Named(self._name), self._arguments


class _Named:
    """A function or class that is only named."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self) -> None:
        """Stands for the function; pickle asks for it."""


class _StorageId:
    def __init__(self, key: str, size: int, kind: str) -> None:
        self.key, self.size, self.kind = key, size, kind


class _CheckpointPickler(pickle._Pickler):
    """Writes names that this process does not have, as torch's pickles hold them."""

    def save(self, obj: object, save_persistent_id: bool = True) -> None:
        if isinstance(obj, _Named):
            module, _, name = obj.name.rpartition(".")
            self.write(b"c" + f"{module}\n{name}\n".encode())  # type: ignore[attr-defined]
            return
        super().save(obj, save_persistent_id)  # type: ignore[misc]

    def persistent_id(self, obj: object) -> object:
        if not isinstance(obj, _StorageId):
            return None
        return ("storage", _Named(obj.kind), obj.key, "cpu", obj.size, None)


def write_checkpoint(
    path: Path,
    arrays: dict[str, Floats],
    *,
    rebuild: str = "torch._utils._rebuild_tensor_v2",
    storage: str = "torch.FloatStorage",
    state: str = "model_state",
) -> None:
    """Writes arrays in torch's old format, with these names for its functions and its table."""
    tensors: OrderedDict[str, object] = OrderedDict()
    for key, (name, array) in enumerate(arrays.items()):
        strides = tuple(stride // array.itemsize for stride in array.strides)
        held = _StorageId(str(key), array.size, storage)
        tensors[name] = _Rebuild(rebuild, held, 0, array.shape, strides, False, OrderedDict())
    with path.open("wb") as file:
        for header in (MAGIC, 1001, {"little_endian": True}):
            pickle.dump(header, file, protocol=2)
        _CheckpointPickler(file, 2).dump({"step": 1, state: tensors})
        pickle.dump([str(key) for key in range(len(arrays))], file, protocol=2)
        for array in arrays.values():
            file.write(struct.pack("<q", array.size) + array.astype("<f4").tobytes())
