"""transformers' own `generate`, called without a server; runs in the peer's environment.

    python run_transformers.py MODEL --threads N

MODEL is a GGUF file or the folder of a model. Each line of standard input is an order in JSON:
`{"prompts": [...], "callers": 4, "max_tokens": 64, "is_batched": false}`. Each line of standard
output is its result. Callers are threads that take one prompt after the other; a batch has one
prompt of each caller. All answers are greedy and stream their text.
"""

import argparse
import json
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """Times and tokens of one answer."""

    took_ms: float
    first_ms: float
    tokens: int


class TokenCounter:
    """Takes what `generate` writes: the prompt, then one token of each row after the other."""

    def __init__(self, rows: int, end_token: int) -> None:
        self._began_s = time.perf_counter()
        self._end_token = end_token
        self._has_prompt = False
        self._is_over = [False] * rows
        self.first_ms: float | None = None
        self.tokens = [0] * rows

    def put(self, values: Any) -> None:
        """Counts a token of each row whose answer is not over."""
        if not self._has_prompt:
            self._has_prompt = True
            return
        if self.first_ms is None:
            self.first_ms = self.now_ms()
        for row, token in enumerate(values.reshape(-1).tolist()):
            self._is_over[row] |= token == self._end_token
            self.tokens[row] += not self._is_over[row]

    def end(self) -> None:
        """Does nothing: `generate` calls it after the last token."""

    def now_ms(self) -> float:
        """Returns the time since the request, in ms."""
        return 1000 * (time.perf_counter() - self._began_s)


class Model:
    """A model and its tokenizer."""

    def __init__(self, path: Path) -> None:
        library = import_module("transformers")
        self._torch = import_module("torch")
        is_gguf = path.suffix == ".gguf"
        source = {"gguf_file": path.name} if is_gguf else {}
        folder = str(path.parent if is_gguf else path)
        self._tokenizer = library.AutoTokenizer.from_pretrained(folder, **source)
        self._tokenizer.padding_side = "left"
        self._tokenizer.pad_token = self._tokenizer.eos_token
        self._network = library.AutoModelForCausalLM.from_pretrained(
            folder, dtype="float32", **source
        ).eval()

    def answer(self, prompts: Sequence[str], max_tokens: int) -> list[Answer]:
        """Answers several prompts as one batch."""
        counter = TokenCounter(len(prompts), self._tokenizer.eos_token_id)
        texts = [
            self._tokenizer.apply_chat_template(
                [{"role": "user", "content": prompt}], add_generation_prompt=True, tokenize=False
            )
            for prompt in prompts
        ]
        sent = self._tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        with self._torch.inference_mode():
            self._network.generate(
                input_ids=sent["input_ids"],
                attention_mask=sent["attention_mask"],
                max_new_tokens=max_tokens,
                do_sample=False,
                streamer=counter,
                pad_token_id=self._tokenizer.eos_token_id,
            )
        took_ms = counter.now_ms()
        return [Answer(took_ms, counter.first_ms or took_ms, tokens) for tokens in counter.tokens]


def main() -> None:
    """Loads the model, and runs the orders."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    import_module("torch").set_num_threads(options.threads)
    model = Model(options.model)
    print(json.dumps({"is_ready": True}), flush=True)
    for line in sys.stdin:
        print(json.dumps(_run(model, json.loads(line))), flush=True)


def _run(model: Model, order: dict[str, Any]) -> dict[str, Any]:
    callers, max_tokens = order["callers"], order["max_tokens"]
    answers: list[Answer] = []
    began_s = time.perf_counter()
    if order["is_batched"]:
        for batch in _batches(order["prompts"], callers):
            answers += model.answer(batch, max_tokens)
    else:
        _run_callers(model, order["prompts"], callers, max_tokens, answers)
    return {
        "wall_s": time.perf_counter() - began_s,
        "answers": [asdict(answer) for answer in answers],
    }


def _run_callers(
    model: Model, prompts: Sequence[str], callers: int, max_tokens: int, answers: list[Answer]
) -> None:
    """Lets threads answer all prompts, each thread one after the other."""
    waiting, lock = iter(prompts), threading.Lock()

    def call() -> None:
        while True:
            with lock:
                prompt = next(waiting, None)
            if prompt is None:
                return
            answers.extend(model.answer([prompt], max_tokens))

    threads = [threading.Thread(target=call) for _ in range(callers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _batches(prompts: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(prompts), size):
        yield prompts[start : start + size]


if __name__ == "__main__":
    main()
