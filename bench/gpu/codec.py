"""`python -m bench.gpu.codec --data FOLDER [--device cuda|cpu] [--models mimi encodec]`.

It compares forms of computing many clips of different lengths with a codec, and streams that are
decoded together with streams one by one. The codecs have random weights of the real shapes: time
and memory do not depend on the weights, the sound does. The clips are cut out of the recordings in
FOLDER; their lengths are lognormal. On a processor one thread computes, and its processor time is
taken, so that other programs disturb little. Needs torch and transformers.
"""

import argparse
import ctypes
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from bench.gpu.random_codecs import random_encodec, random_mimi, write
from core.errors import EarshotError
from engines.base.codec import Codes, Samples
from engines.codec.encodec.network import load as load_encodec
from engines.codec.items import SAMPLE_SCALE
from engines.codec.mimi.network import load as load_mimi
from engines.codec.settings import CodecName, Settings, read_info
from engines.codec.torch_layers.segmented_codec import STEP_FRAMES, CodecNetwork, SegmentedCodec
from engines.codec.torch_layers.streams import TorchDecodeStreams
from media.files.decode import decode_file

RATE_HZ = 24_000
CODEBOOKS = 8
ROWS = 8
"Clips or segments in a batch of the forms that have batches."

SPREAD = 0.6
"Standard deviation of the logarithm of the clips' lengths."

SIDES = ("encode", "decode")

STREAMS = (1, 4, 16)
STREAM_FRAMES = 25
"Frames of each stream that are measured, two seconds."


@dataclass(frozen=True, slots=True)
class FormCost:
    """Cost of one form for all clips."""

    seconds: float
    peak_mb: float
    "Memory above that before the first clip."


class CodecBench:
    """A codec with random weights, and the clips."""

    def __init__(self, name: CodecName, device: str, clips: list[Samples]) -> None:
        self._name, self._device, self._clips = name, device, clips
        with TemporaryDirectory() as folder:
            path = Path(folder)
            write(random_mimi() if name == "mimi" else random_encodec(), path)
            self._info = read_info(name, path)
            load = load_mimi if name == "mimi" else load_encodec
            self._network: CodecNetwork = load(path, device)
        size = self._info.frame_samples
        self._frames = [-(-len(clip) // size) for clip in clips]
        random = np.random.default_rng(0)
        self._codes: list[Codes] = [
            random.integers(0, self._info.codebook_size, (1, CODEBOOKS, frames)).astype(np.int16)
            for frames in self._frames
        ]

    def forms(self) -> None:
        """Prints a table of all forms, for encoding and decoding."""
        order = range(len(self._clips))
        by_length = sorted(order, key=lambda clip: -self._frames[clip])
        sides = "".join(f" {side}, x real time | too much | peak MB |" for side in SIDES)
        print(f"\n| {self._name} |{sides}\n|{'---|' * 7}")
        self._padded("one by one, no padding", order, 1)
        self._padded(f"naive: {ROWS} clips, padded to the longest", order, ROWS)
        self._padded(f"sorted by length, {ROWS} clips", by_length, ROWS)
        for segment_s, overlap_s in ((10.0, 1.0), (4.0, 0.5)):
            title = f"segments of {segment_s:g} s, {overlap_s:g} s in common, {ROWS} rows"
            self._segmented(title, False, rows=ROWS, segment_s=segment_s, overlap_s=overlap_s)
        if self._info.can_stream:
            self._segmented(f"state kept from step to step, {ROWS} rows", True, rows=ROWS)
        self._segmented("default", self._info.can_stream)

    def streams(self) -> None:
        """Prints a table of streams that are decoded together and one by one."""
        print("\n| streams | step, ms | per stream, ms | beside one stream |\n|---|---|---|---|")
        alone_ms = 0.0
        for count in STREAMS:
            decoder = self._network.stream_decoder(count, 1)
            if decoder is None:
                print(f"{self._name} has no streams")
                return
            streams = TorchDecodeStreams(decoder, self._info, count, 1)
            ids = [streams.open() for _ in range(count)]
            steps_ms = []
            for at in range(STREAM_FRAMES + 3):
                codes = self._codes[0][0, :, at % self._frames[0] :][:, :1]
                began = self._now()
                streams.step(dict.fromkeys(ids, codes))
                steps_ms.append((self._now() - began) * 1000)
            step_ms = float(np.median(steps_ms[3:]))
            alone_ms = alone_ms or step_ms
            share = step_ms / count / alone_ms
            print(f"| {count} | {step_ms:.1f} | {step_ms / count:.1f} | {share:.2f} |")

    def _padded(self, title: str, order: Iterable[int], rows: int) -> None:
        numbers = list(order)
        batches = [numbers[at : at + rows] for at in range(0, len(numbers), rows)]
        longest = [max(self._frames[clip] for clip in batch) for batch in batches]
        computed = sum(len(batch) * most for batch, most in zip(batches, longest, strict=True))

        def encode() -> None:
            for batch, most in zip(batches, longest, strict=True):
                sound = np.zeros((len(batch), 1, most * self._info.frame_samples), np.float32)
                for row, clip in enumerate(batch):
                    sound[row, 0, : len(self._clips[clip])] = self._clips[clip]
                self._network.encode(torch.from_numpy(sound).to(self._device), CODEBOOKS).cpu()

        def decode() -> None:
            for batch, most in zip(batches, longest, strict=True):
                codes = np.zeros((len(batch), CODEBOOKS, most), np.int64)
                for row, clip in enumerate(batch):
                    codes[row, :, : self._frames[clip]] = self._codes[clip][0]
                self._network.decode(torch.from_numpy(codes).to(self._device)).cpu()

        self._row(title, (computed, computed), encode, decode)

    def _segmented(self, title: str, keeps_state: bool, **settings: Any) -> None:
        """Measures our own engine. keeps_state: sound is decoded step by step, not in segments."""
        options = Settings(model="random", device=self._device, **settings)
        info = replace(self._info, can_stream=keeps_state)
        codec = SegmentedCodec(self._network, info, options)
        batches = codec.batches_of(self._frames)
        computed = in_steps = sum(len(batch) * batch[0].frames for batch in batches)
        if keeps_state:
            in_steps = _stepped_frames(self._frames, codec.info.max_batch)
        self._row(
            title,
            (computed, in_steps),
            lambda: codec.encode(self._clips, CODEBOOKS),
            lambda: codec.decode(self._codes),
        )

    def _row(
        self,
        title: str,
        computed_frames: tuple[int, int],
        encode: Callable[[], object],
        decode: Callable[[], object],
    ) -> None:
        """Measures a form and prints its line of the table. `computed_frames`: by encoding and by
        decoding."""
        cells = []
        for work, frames in zip((encode, decode), computed_frames, strict=True):
            cost = self._cost(work)
            sound_s = sum(map(len, self._clips)) / RATE_HZ
            waste = frames / sum(self._frames) - 1
            cells += [f"{sound_s / cost.seconds:.1f}", f"{waste:.0%}", f"{cost.peak_mb:.0f}"]
        print(f"| {title} | {' | '.join(cells)} |", flush=True)

    def _cost(self, work: Callable[[], object]) -> FormCost:
        with torch.inference_mode():
            if self._device == "cpu":
                before_mb = _reset_peak_mb()
            else:
                work()  # chooses kernels, which a server does once
                torch.cuda.reset_peak_memory_stats()
                before_mb = torch.cuda.memory_allocated() / 2**20
            began = self._now()
            work()
            seconds = self._now() - began
        is_cpu = self._device == "cpu"
        peak_mb = _peak_mb() if is_cpu else torch.cuda.max_memory_allocated() / 2**20
        return FormCost(seconds, peak_mb - before_mb)

    def _now(self) -> float:
        if self._device == "cpu":
            return time.process_time()
        torch.cuda.synchronize()
        return time.perf_counter()


def _stepped_frames(frames: Sequence[int], rows: int) -> int:
    """Returns how many frames are computed if rows take clips of these lengths, the longest first,
    and all rows make steps of one length."""
    waiting, active, computed = sorted(frames), list[int](), 0
    while waiting or active:
        while waiting and len(active) < rows:
            active.append(waiting.pop())
        step = min(STEP_FRAMES, max(*active, 1))
        computed += step * len(active)
        active = [rest - step for rest in active if rest > step]
    return computed


def _reset_peak_mb() -> float:
    """Gives freed memory back to the system, and resets the process's peak. Returns its memory in
    MB."""
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _peak_mb()


def _peak_mb() -> float:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = [line for line in status.splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 1024


def read_clips(folder: Path, count: int, mean_s: float) -> list[Samples]:
    """Cuts clips of lognormal lengths out of the recordings of a folder, the same every time."""
    random = np.random.default_rng(7)
    lengths_s = random.lognormal(np.log(mean_s) - SPREAD**2 / 2, SPREAD, count)
    needed = round(float(lengths_s.sum()) * RATE_HZ) + count
    pieces: list[Samples] = []
    for file in sorted(folder.rglob("*.wav")):
        try:
            pieces.append(decode_file(file, RATE_HZ).astype(np.float32) / np.float32(SAMPLE_SCALE))
        except EarshotError:
            continue  # the folder may hold damaged files for other tests
        if sum(map(len, pieces)) >= needed:
            break
    sound = np.resize(np.concatenate(pieces), needed)
    ends = np.cumsum(np.round(lengths_s * RATE_HZ)).astype(int)
    return [part.copy() for part in np.split(sound, ends)[:count]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measures and prints the tables."""
    parser = argparse.ArgumentParser(description="Compares forms of running a codec.")
    parser.add_argument("--data", type=Path, required=True, help="folder with WAV recordings")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    names: list[CodecName] = ["mimi", "encodec"]
    parser.add_argument("--models", nargs="+", choices=names, default=names)
    parser.add_argument("--clips", type=int, default=24)
    parser.add_argument("--mean", type=float, default=9.5, help="mean length of a clip, seconds")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    clips = read_clips(options.data, options.clips, options.mean)
    lengths_s = [len(clip) / RATE_HZ for clip in clips]
    print(f"{len(clips)} clips, {sum(lengths_s):.0f} s, the longest {max(lengths_s):.1f} s")
    for name in options.models:
        bench = CodecBench(name, options.device, clips)
        bench.forms()
        bench.streams()


if __name__ == "__main__":
    main()
