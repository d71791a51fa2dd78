"""Measures the clauses per minute of the stages of tts.bark, beside transformers' `generate`.

Both run one network with random weights of the shape of `suno/bark-small`, or a narrower one, in
one process, and take turns: the stages get all clauses, `generate` one after the other.
Run it as `python -m bench.gpu.staged_speech`; it needs the extra `torch`.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import (
    BarkCoarseConfig,
    BarkConfig,
    BarkFineConfig,
    BarkModel,
    BarkSemanticConfig,
    GenerationConfig,
)

from bench.tools.stats import machine, markdown
from engines.base.voice import StageTime
from engines.tts.bark import create_stages
from engines.tts.bark.layout import BarkLayout, layout_of
from engines.tts.bark.networks import networks_of
from engines.tts.bark.settings import Settings, StageSettings

TEXT_IDS = 20
"Tokens of a sentence of 80 letters."

STAGES = ("semantic", "coarse", "fine", "codec")


def random_bark(width: int, layers: int) -> Any:
    """Returns a `BarkModel` with random weights and the published vocabulary."""
    shape = {"hidden_size": width, "num_layers": layers, "num_heads": width // 64, "bias": False}
    torch.manual_seed(0)
    config = BarkConfig(
        semantic_config=BarkSemanticConfig(
            **shape, input_vocab_size=129_600, output_vocab_size=10_048
        ),
        # The published one has 48 rows more, which only transformers can choose.
        coarse_acoustics_config=BarkCoarseConfig(
            **shape, input_vocab_size=12_096, output_vocab_size=12_048
        ),
        fine_acoustics_config=BarkFineConfig(
            **shape, input_vocab_size=1056, output_vocab_size=1056
        ),
    )
    return BarkModel(config).eval()


def generate(model: Any, texts: Sequence[Sequence[int]], layout: BarkLayout) -> list[int]:
    """Returns the number of samples of each clause, spoken by transformers one after the other."""
    found = []
    for text in texts:
        places = layout.text_ids - len(text)
        ids = torch.tensor([[*text, *[0] * places]], device=model.device)
        mask = torch.tensor([[1] * len(text) + [0] * places], device=model.device)
        found.append(len(model.generate(ids, attention_mask=mask)[0]))
    return found


def main() -> None:
    """Measures both in turn, and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clauses", type=int, default=4)
    parser.add_argument("--semantic-ids", type=int, default=60, help="of each; 50 are a second")
    parser.add_argument("--apart", type=float, default=0, help="s between two starts of clauses")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    model = random_bark(arguments.width, arguments.layers).to(arguments.device)
    generation = {"semantic_config": {"max_new_tokens": arguments.semantic_ids}}
    generation |= {"coarse_acoustics_config": {}, "fine_acoustics_config": {}}
    model.generation_config = GenerationConfig(**generation, codebook_size=1024)
    layout = layout_of(generation)
    stage = StageSettings(device=arguments.device, batch=arguments.batch)
    settings = Settings(
        path="-", semantic=stage, coarse=stage, fine=stage, codec=stage, min_stop_chance=1
    )
    starts = range(100, 100 * arguments.clauses + 1, 100)
    texts = [range(start, start + TEXT_IDS) for start in starts]
    times: list[StageTime] = []
    stages = create_stages(networks_of(model, settings, 1024), layout, settings, times.append)

    async def one(number: int) -> int:
        await asyncio.sleep(number * arguments.apart)
        return len(await stages.sound(texts[number], None, seed=0))

    async def staged() -> list[int]:
        return await asyncio.gather(*map(one, range(len(texts))))

    runs: Mapping[str, Callable[[], list[int]]] = {
        "transformers generate, one after the other": lambda: generate(model, texts, layout),
        "stages of tts.bark": lambda: asyncio.run(staged()),
    }
    wall: dict[str, list[float]] = {name: [] for name in runs}
    processor: dict[str, list[float]] = {name: [] for name in runs}
    lengths = set()
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            began, processor_began = time.perf_counter(), time.process_time()
            lengths.add(tuple(run()))
            wall[name].append(time.perf_counter() - began)
            processor[name].append(time.process_time() - processor_began)
    assert len(lengths) == 1, f"both speak equally long: {lengths}"
    audio_s = sum(lengths.pop()) / 24_000
    shape = f"width {arguments.width}, {arguments.layers} layers, batch {arguments.batch}"
    print(f"{machine()}; {arguments.device}, {arguments.threads} threads; {shape}")
    clauses = f"{arguments.clauses} clauses, {arguments.apart:g} s apart"
    print(f"{clauses}, {audio_s:.1f} s of sound, {arguments.rounds} rounds\n")
    rows = [
        (name, _median(wall[name]), _median(processor[name]), f"{_rate(wall[name], audio_s)}")
        for name in runs
    ]
    print(markdown(("", "s, median (range)", "processor s", "s of sound per s"), rows))
    alone, together = (statistics.median(wall[name]) for name in runs)
    print(f"{alone / together:.2f} x in wall time\n")
    print(markdown(("stage", "queue s", "compute s", "batch"), [_stage(s, times) for s in STAGES]))


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _rate(values: Sequence[float], audio_s: float) -> str:
    return f"{audio_s / statistics.median(values):.3f}"


def _stage(name: str, times: Sequence[StageTime]) -> tuple[str, str, str, str]:
    """Returns the means of one stage."""
    own = np.array([(t.queue_s, t.compute_s, t.batch) for t in times if t.stage == name])
    queue_s, compute_s, batch = own.mean(0)
    return name, f"{queue_s:.2f}", f"{compute_s:.2f}", f"{batch:.1f}"


if __name__ == "__main__":
    main()
