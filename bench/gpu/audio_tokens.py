"""Measures how many audio tokens per second the backend of tts.indri writes, beside transformers.

Both run the same network with random weights, of the shape of Indri's 124 M, in one process, and
take turns. Run it as `python -m bench.gpu.audio_tokens`; it needs the extra `torch`.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LogitsProcessorList

from bench.tools.stats import machine, markdown
from engines.tts.indri.checkpoint import frame_order, network_of
from engines.tts.indri.frames import codebook_at, may_stop
from engines.tts.indri.token_layout import AUDIO_IDS, CODEBOOK_SIZE, TokenLayout
from engines.tts.token_model.backend import TokenRequest
from engines.tts.token_model.torch_backend import TorchBackend

VOCABULARY = 70_016
"Ids of the published checkpoints."

TEXT_IDS = 50_257
"Ids of GPT-2's tokenizer."

CONTEXT = 1024
PROMPT_IDS = 24
"Ids of the prompt of a sentence of 80 letters."


class CodebookOrder:
    """A logits processor of transformers. It allows the ids of the codebook whose turn it is, and
    the end marker between frames."""

    def __init__(self, layout: TokenLayout, prompt_ids: int) -> None:
        self._layout, self._prompt_ids = layout, prompt_ids

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        position = input_ids.shape[1] - self._prompt_ids
        first = self._layout.first_code(codebook_at(position))
        allowed = torch.full_like(scores, -torch.inf)
        allowed[:, first : first + CODEBOOK_SIZE] = scores[:, first : first + CODEBOOK_SIZE]
        if may_stop(position):
            allowed[:, self._layout.stop] = scores[:, self._layout.stop]
        return allowed


def generate(model: Any, layout: TokenLayout, request: TokenRequest) -> list[int]:
    """Returns the ids that transformers' `generate` writes, with greedy search."""
    prompt = torch.tensor([request.prompt], device=model.device)
    with torch.inference_mode():
        written = model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            do_sample=False,
            max_new_tokens=request.max_ids,
            eos_token_id=layout.stop,
            pad_token_id=layout.stop,
            logits_processor=LogitsProcessorList([CodebookOrder(layout, len(request.prompt))]),
        )
    ids: list[int] = written[0, len(request.prompt) :].tolist()
    return ids


def step_all(backend: TorchBackend, requests: Sequence[TokenRequest]) -> list[list[int]]:
    """Returns the ids of speeches that begin together."""
    written: dict[int, list[int]] = {backend.start(request): [] for request in requests}
    running = len(written)
    while running:
        for number, new in backend.step().items():
            written[number].append(new.id)
            running -= new.is_last
    return list(written.values())


def main() -> None:
    """Measures both in turn, and prints the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--callers", type=int, default=4)
    parser.add_argument("--ids", type=int, default=160, help="ids of each speech; 100 are a second")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=VOCABULARY, n_positions=CONTEXT)
    model = GPT2LMHeadModel(config).eval().to(arguments.device, getattr(torch, arguments.dtype))
    first = TEXT_IDS + AUDIO_IDS
    layout = TokenLayout(TEXT_IDS, first, first + 1, first + 2, first + 4, {"spkr_63": first + 6})
    backend = TorchBackend(
        network_of(model), frame_order(layout), arguments.callers, name="tts.indri"
    )
    requests = [
        TokenRequest(tuple(range(start, start + PROMPT_IDS)), arguments.ids)
        for start in range(100, 100 + 100 * arguments.callers, 100)
    ]

    def one_by_one() -> list[list[int]]:
        return [generate(model, layout, request) for request in requests]

    runs: dict[str, Callable[[], list[list[int]]]] = {
        "transformers generate, 1 caller": lambda: [generate(model, layout, requests[0])],
        "tts.indri, 1 caller": lambda: step_all(backend, requests[:1]),
        f"transformers generate, {arguments.callers} callers one by one": one_by_one,
        f"tts.indri, {arguments.callers} callers": lambda: step_all(backend, requests),
    }
    speeds: dict[str, list[float]] = {name: [] for name in runs}
    processor_speeds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(arguments.rounds):
        for name, run in runs.items():
            began, processor_began = time.perf_counter(), time.process_time()
            ids = sum(map(len, run()))
            speeds[name].append(ids / (time.perf_counter() - began))
            processor_speeds[name].append(ids / (time.process_time() - processor_began))
    device = f"{arguments.device}, {arguments.threads} threads, {arguments.dtype}"
    print(f"{machine()}; {device}; {arguments.ids} ids each, {arguments.rounds} rounds\n")
    _print_medians("ids/s", speeds, arguments.callers)
    _print_medians("ids per second of a processor", processor_speeds, arguments.callers)


def _print_medians(unit: str, speeds: Mapping[str, Sequence[float]], callers: int) -> None:
    medians = {name: statistics.median(found) for name, found in speeds.items()}
    print(
        markdown(
            ("", f"{unit}, median (range)"),
            [
                (name, f"{medians[name]:.1f} ({min(found):.1f} to {max(found):.1f})")
                for name, found in speeds.items()
            ],
        )
    )
    alone, own, sequence, together = medians.values()
    print(f"1 caller: {own / alone:.2f} x; {callers}: {together / sequence:.2f} x\n")


if __name__ == "__main__":
    main()
