"""A batch's audio as the decoder hears it, and parts of that batch."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from engines.asr.whisper.features import Features


class EncoderOutput:
    """One encoder call's output, one row per window."""

    def __init__(self, model: Any, windows: Sequence[Features]) -> None:
        from ctranslate2 import StorageView

        self._all = model.encode(StorageView.from_array(np.stack(windows)))
        self._count = len(windows)
        self._array: Any = None

    def rows(self, wanted: Sequence[int]) -> Any:
        """These rows, in this order, as the model's methods take them."""
        from ctranslate2 import DataType, Device, StorageView

        if list(wanted) == list(range(self._count)):
            return self._all
        if self._array is None:  # copied once: a view cannot be cut, and lies on the GPU perhaps
            view = self._all
            if view.dtype == DataType.bfloat16:  # numpy has none
                view = view.to(DataType.float32)
            self._array = np.array(view.to_device(Device.cpu))
        return StorageView.from_array(np.ascontiguousarray(self._array[list(wanted)]))
