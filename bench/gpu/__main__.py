"""`python -m bench.gpu [--device cuda|cpu] [--only NAME ...] [--tiny] [--skip-transformers]`.

Models have random weights of the real shapes, and token counts are forced. Times are taken by
device events after warm-up, with Earshot and transformers in turn. Each figure is shown with its
floor: the least time that follows from the speed of copies and matrix products, measured in the
same run. Each model is checked before it is timed. A check that fails stops nothing, but is named
at the end, and the exit status is 1. Needs torch, numpy, safetensors and tokenizers, and
transformers for the comparison.
"""

import argparse
import random
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import torch

from bench.gpu.cuda_clock import FailedCall, RunTimes, alternating, compare
from bench.gpu.request_load import at_random, latencies_ms, percentile, streams
from bench.gpu.run import GpuBench
from bench.gpu.transformers_baseline import generator
from bench.gpu.whisper_torch import generate_tokens

PARTS = ("check", "single", "batch", "beam", "sizes", "arrivals", "streams")
SIZES = ("large-v3", "medium", "base")


def check(bench: GpuBench) -> None:
    """Checks every model once, so that later parts of the run need not check it again."""
    for name in ("turbo", "large-v2", *SIZES):
        bench.model(name)


def peers(
    bench: GpuBench, windows: torch.Tensor, tokens: int, beams: int = 1
) -> list[Callable[[], object]]:
    """Returns calls of transformers: with sdpa, and on a GPU also compiled.

    transformers takes windows of 30 s only: shorter ones are padded with zeros.
    """
    if bench.options.skip_transformers:
        return []
    whole = torch.nn.functional.pad(windows, (0, 3000 - windows.shape[2]))
    model = bench.reference()
    made: list[Callable[[], object]] = [generator(model, whole, tokens, beams)]
    if bench.device.type == "cuda":
        made.append(generator(model, whole, tokens, beams, compiled=True))
    return made


def cells(results: Sequence[RunTimes | FailedCall], show: Callable[[RunTimes], str] = str) -> str:
    """Returns the two table cells of transformers."""
    texts = [show(result) if isinstance(result, RunTimes) else str(result) for result in results]
    return " | ".join([*texts, *["-"] * (2 - len(texts))])


def single(bench: GpuBench) -> None:
    """Measures one window with turbo."""
    model = bench.model("turbo")
    print("\n| turbo, batch 1 | floor, ms | ours, ms | transformers sdpa, in 30 s | compiled |")
    print("|---|---|---|---|---|")
    for frames, tokens in ((3000, 50), (500, 20)):
        tokens = 4 if bench.options.tiny else tokens
        (window,) = bench.windows(model, [frames])
        ours = partial(generate_tokens, model, [window], tokens)
        others = peers(bench, window[None], tokens)
        own_times, other_times = compare(ours, others, bench.device, bench.rounds)
        row = f"{bench.floor(model, 1, frames, tokens):.2f} | {own_times} | {cells(other_times)}"
        print(f"| {frames // 100} s, {tokens} tokens | {row} |", flush=True)


def batch(bench: GpuBench) -> None:
    """Measures many utterances of 2 to 30 s at once, with windows in steps of 5 s."""
    model, rng = bench.model("turbo"), random.Random(0)
    print("\n| turbo, mixed 2-30 s | floor, x real time | ours | transformers sdpa | compiled |")
    print("|---|---|---|---|---|")
    for count in (2,) if bench.options.tiny else (8, 32, 128):
        seconds = [rng.uniform(2, 30) for _ in range(count)]
        frames = [500 * -(-int(length + 0.5) // 5) for length in seconds]
        windows = bench.windows(model, frames)
        tokens = 4 if bench.options.tiny else 50
        padded = torch.zeros(count, model.shape.mels, 3000, device=bench.device, dtype=bench.dtype)
        ours = partial(generate_tokens, model, windows, tokens)
        others = peers(bench, padded, tokens)
        own_times, other_times = compare(ours, others, bench.device, min(bench.rounds, 5))
        floor_ms = sum(bench.floor(model, 1, length, 0) for length in frames)
        floor_ms += bench.floor(model, count, max(frames), tokens)
        floor_ms -= bench.floor(model, count, max(frames), 0)
        audio_ms = 1000 * sum(seconds)
        row = f"{audio_ms / floor_ms:.0f} | {audio_ms / own_times.median:.0f} | "
        row += cells(other_times, partial(_speed, audio_ms))
        print(f"| {count} | {row} |", flush=True)


def _speed(audio_ms: float, times: RunTimes) -> str:
    return f"{audio_ms / times.median:.0f}"


def beam(bench: GpuBench) -> None:
    """Measures the case of Willow Inference Server's benchmark: large-v2, beam 5, 3.84 s."""
    model = bench.model("large-v2")
    print("\n| large-v2, beam 5 | floor, ms | ours, ms | transformers sdpa, in 30 s | compiled |")
    print("|---|---|---|---|---|")
    for frames, label in ((500, "3.84 s in 5 s"), (3000, "3.84 s in 30 s")):
        tokens = 4 if bench.options.tiny else 15
        (window,) = bench.windows(model, [frames])
        ours = partial(generate_tokens, model, [window], tokens, 5)
        others = peers(bench, window[None], tokens, 5)
        own_times, other_times = compare(ours, others, bench.device, bench.rounds)
        row = f"{bench.floor(model, 1, frames, tokens, 5):.2f} | {own_times} | {cells(other_times)}"
        print(f"| {label}, {tokens} tokens | {row} |", flush=True)


def sizes(bench: GpuBench) -> None:
    """Measures the other sizes with one window of 30 s."""
    rows = []
    for name in ("toy",) if bench.options.tiny else SIZES:
        model = bench.model(name)
        windows, tokens = bench.windows(model, [3000]), 4 if bench.options.tiny else 50
        ours = partial(generate_tokens, model, windows, tokens)
        (times,) = alternating([ours], bench.device, bench.rounds)
        rows.append(f"| {name} | {bench.floor(model, 1, 3000, tokens):.2f} | {times} |")
    print("\n| 30 s, 50 tokens | floor, ms | ours, ms |\n|---|---|---|")
    print("\n".join(rows), flush=True)


def arrivals(bench: GpuBench) -> None:
    """Measures the latency of utterances that arrive at random times."""
    model = bench.model("turbo")
    print("\n| turbo, arrivals/s | p50, ms | p95, ms | p99, ms |\n|---|---|---|---|")
    for per_s in (2,) if bench.options.tiny else (50, 100, 200, 400):
        _, times = latencies_ms(model, at_random(per_s, 1 if bench.options.tiny else 20))
        row = " | ".join(f"{percentile(times, share):.1f}" for share in (0.5, 0.95, 0.99))
        print(f"| {per_s} | {row} |", flush=True)


def live(bench: GpuBench) -> None:
    """Measures the latency of live speakers with partials every 500 ms."""
    model = bench.model("turbo")
    print("\n| turbo, live streams | partials: p50, ms | p95, ms | finals: p50, ms | p95, ms |")
    print("|---|---|---|---|---|")
    for count in (1,) if bench.options.tiny else (100, 200, 400, 600, 800):
        partials, finals = latencies_ms(model, streams(count, 3 if bench.options.tiny else 20))
        each = [(times, share) for times in (partials, finals) for share in (0.5, 0.95)]
        row = " | ".join(f"{percentile(times, share):.1f}" for times, share in each)
        print(f"| {count} | {row} |", flush=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument(
        "--tiny", action="store_true", help="use a tiny model, to check that everything runs"
    )
    parser.add_argument("--skip-transformers", action="store_true")
    parser.add_argument("--folder", type=Path, help="folder in which the checkpoints are kept")
    options = parser.parse_args(arguments)
    run = {"check": check, "single": single, "batch": batch, "beam": beam, "sizes": sizes}
    run |= {"arrivals": arrivals, "streams": live}
    with tempfile.TemporaryDirectory() as scratch, torch.inference_mode():
        bench = GpuBench(options, options.folder or Path(scratch))
        speed = bench.floors
        name = torch.cuda.get_device_name() if bench.device.type == "cuda" else "cpu"
        print(f"{name}, torch {torch.__version__}, {bench.kind}")
        print(f"copies {speed.bytes_per_s / 1e12:.2f} TB/s (read and written)")
        print(f"matrix products {speed.flop_per_s / 1e12:.1f} TFLOP/s")
        for part in options.only:
            run[part](bench)
        for failure in bench.failed:
            print(f"\nfailed: {failure}", flush=True)
    return int(bool(bench.failed))


if __name__ == "__main__":
    raise SystemExit(main())
