"""One run of `bench.gpu`: its settings, its models, and the results of the checks."""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

from bench.gpu.correctness import (
    graphs_with_eager,
    is_varied,
    texts_of_transformers,
    with_transformers,
)
from bench.gpu.cuda_clock import DeviceSpeed, floors
from bench.gpu.random_models import write
from bench.gpu.roofline import floor_ms
from bench.gpu.transformers_baseline import loaded
from bench.gpu.whisper_torch import open_model
from engines.asr.whisper_torch.network.device import DeviceModel

CAPTURE_S = 60.0
"Longest time for capturing CUDA graphs."

LEAST_EQUAL = 0.999
"Least share of equal tokens: only rounding in another order may differ."

ROWS: Mapping[str, int] = {"turbo": 128, "large-v2": 16}
"Rows that the measurements of a model need; 8 for other models."


class GpuBench:
    """Settings of one run, and the model that is open."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.folder = options, folder
        self.device = torch.device(options.device)
        self.dtype = torch.float32 if self.device.type == "cpu" else torch.float16
        self.kind = str(self.dtype).removeprefix("torch.")
        self.rounds = 2 if options.tiny else 7
        self.floors: DeviceSpeed = floors(self.device, self.dtype)
        self.failed: list[str] = []
        "Failed checks. They stop nothing: times are reported all the same."
        self._checked: set[str] = set()
        self._name = ""
        self._model: DeviceModel | None = None

    def model(self, name: str) -> DeviceModel:
        """Returns the model, checked once per run. Only one is open at a time; opening another
        frees its memory."""
        name = "toy" if self.options.tiny else name
        model = self._opened(name, 8 if self.options.tiny else ROWS.get(name, 8))
        if name not in self._checked:
            self._checked.add(name)
            self._check(name, model)
        return model

    def _opened(self, name: str, rows: int) -> DeviceModel:
        if self._model is None or name != self._name:
            self._model = None
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            folder = write(self.folder, name, self.options.device, self.dtype)
            self._model = open_model(folder, self.kind, self.options.device, rows, CAPTURE_S)
            self._name = name
        return self._model

    def reference(self) -> object:
        """Returns transformers' version of the open model."""
        folder = self.folder / f"{self._name}-{self.kind}"
        return loaded(folder, self.dtype, self.options.device)

    def windows(
        self, model: DeviceModel, frames: Sequence[int], seed: int = 0
    ) -> list[torch.Tensor]:
        """Returns random windows with these lengths in mel frames."""
        source = torch.Generator("cpu").manual_seed(seed)
        made = [torch.randn(model.shape.mels, length, generator=source) for length in frames]
        return [tensor.to(self.device, self.dtype) for tensor in made]

    def floor(
        self, model: DeviceModel, windows: int, frames: int, tokens: int, beams: int = 1
    ) -> float:
        """Returns the least time in ms that this device could take."""
        return floor_ms(
            model.shape,
            self.floors,
            windows=windows,
            beams=beams,
            frames=frames,
            tokens=tokens,
            bytes_=self.dtype.itemsize,
        )

    def _check(self, name: str, model: DeviceModel) -> None:
        """Compares the tokens with transformers', and graphs with kernels."""
        print("\n| check | of | equal |\n|---|---|---|")
        same, count = graphs_with_eager(model)
        if same != count:
            self.failed.append(
                f"{name}, graphs: {count - same} of {count} differ from single kernels"
            )
        equal = f"{same / count:.4f}" if count else "none captured"
        print(f"| {name}: state after a graph, after its kernels | {count} graphs | {equal} |")
        if not self.options.skip_transformers:
            reference = self.reference()
            windows = self.windows(model, [3000] * (2 if self.options.tiny else 20))
            for beams in (1, 5):
                row = self._compared(name, model, reference, windows, beams)
                print(f"| {name}: ours, transformers | {row} |", flush=True)

    def _compared(
        self,
        name: str,
        model: DeviceModel,
        reference: object,
        windows: Sequence[torch.Tensor],
        beams: int,
    ) -> str:
        counted = "steps, beam 1" if beams == 1 else f"tokens to a first difference, beam {beams}"
        texts = texts_of_transformers(reference, windows, 24 if self.options.tiny else 50, beams)
        share = with_transformers(model, windows, texts, beams)
        if share < LEAST_EQUAL:
            self.failed.append(f"{name}, tokens: {share:.4f} equal to transformers', beam {beams}")
        if is_varied(texts):
            return f"{counted} | {share:.4f}"
        self.failed.append(f"{name}, texts: too repetitive to prove anything, beam {beams}")
        return f"{counted} | failed: texts too repetitive, {share:.4f}"
