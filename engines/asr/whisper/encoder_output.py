"""The encoder's output for a batch of windows, and parts of it."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from engines.asr.whisper.features import Features


class EncoderOutput:
    """Output of one encoder call, one row per window."""

    def __init__(self, model: Any, windows: Sequence[Features]) -> None:
        from ctranslate2 import StorageView

        self._all = model.encode(StorageView.from_array(np.stack(windows)))
        self._count = len(windows)
        self._array: Any = None

    def rows(self, wanted: Sequence[int]) -> Any:
        """Returns these rows, in this order, as the model's methods take them."""
        from ctranslate2 import DataType, Device, StorageView

        if list(wanted) == list(range(self._count)):
            return self._all
        if self._array is None:  # copied once: a view cannot be cut, and it may be on the GPU
            view = self._all
            if view.dtype == DataType.bfloat16:  # numpy has no such type
                view = view.to(DataType.float32)
            self._array = np.array(view.to_device(Device.cpu))
        return StorageView.from_array(np.ascontiguousarray(self._array[list(wanted)]))
