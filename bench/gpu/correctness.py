"""Checks before any timing: the same tokens as transformers, and the same results of graphs and
kernels."""

from collections.abc import Sequence

import torch

from bench.gpu.transformers_baseline import generator
from bench.gpu.whisper_torch import generate_tokens
from engines.asr.whisper_torch.batching.kv_cache import NewRow, StepKind
from engines.asr.whisper_torch.network.cuda_graphs import EagerLauncher, EncodeShape, StepShape
from engines.asr.whisper_torch.network.device import DeviceModel

MAX_DIFFERENCES = 32
"Limit of the differences in one text; with more of them the texts have nothing in common."

_CLOSE = 2e-2
"Relative tolerance: graphs may have been captured with other kernels than eager calls choose."


def equal_share(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> float:
    """Returns the share of tokens that are equal, position by position.

    After a first difference the texts are not comparable, so the rest counts as different.
    """
    total = sum(map(len, theirs))
    same = 0
    for mine, its in zip(ours, theirs, strict=True):
        alike = [a == b for a, b in zip(mine, its, strict=False)]
        same += alike.index(False) if False in alike else len(alike)
    return same / total if total else 1.0


def is_varied(texts: Sequence[Sequence[int]]) -> bool:
    """Returns True if each window has another text, and no text repeats a few tokens.

    Otherwise equal tokens would not prove that the model used the audio or the earlier tokens.
    """
    differ = len(set(map(tuple, texts))) == len(texts)
    return differ and all(2 * len(set(text)) > len(text) for text in texts)


def texts_of_transformers(
    reference: object, windows: Sequence[torch.Tensor], tokens: int, beams: int = 1
) -> list[list[int]]:
    """Decodes the windows one by one with transformers."""
    made = [generator(reference, window[None], tokens, beams)() for window in windows]
    return [output[0].tolist()[-tokens:] for output in made]


def teacher_forced(
    model: DeviceModel, windows: Sequence[torch.Tensor], texts: Sequence[Sequence[int]]
) -> float:
    """Returns the share of steps with the reference's token as the likeliest, after the same
    tokens.

    After a difference the decoding continues behind the reference's token, so a single tie does not
    spoil the rest.
    """
    differences = 0
    for window, text in zip(windows, texts, strict=True):
        known = 0
        for _ in range(MAX_DIFFERENCES):
            (written,) = generate_tokens(model, [window], len(text) - known, given=text[:known])
            rest = text[known:]
            alike = [a == b for a, b in zip(written.tokens, rest, strict=True)]
            if all(alike):
                break
            differences += 1
            known += alike.index(False) + 1
            if known == len(text):
                break
        else:
            differences += len(text) - known
    return 1 - differences / sum(map(len, texts))


def with_transformers(
    model: DeviceModel, windows: Sequence[torch.Tensor], texts: Sequence[Sequence[int]], beams: int
) -> float:
    """Compares the tokens with those of transformers.

    Greedy: the share of equal steps (`teacher_forced`). With a beam the earlier tokens depend on
    the beam itself, so the share of equal tokens up to the first difference counts.
    """
    if beams == 1:
        return teacher_forced(model, windows, texts)
    own = [written.tokens for written in generate_tokens(model, windows, len(texts[0]), beams)]
    return equal_share(own, texts)


def graphs_with_eager(model: DeviceModel) -> tuple[int, int]:
    """Counts the captured graphs that leave the same state as single kernels; returns (same,
    all)."""
    eager = EagerLauncher(model.weights, model.state)
    captured = model.launcher.captured
    same = 0
    for number, shape in enumerate(captured):
        if isinstance(shape, EncodeShape):
            size = (shape.windows, model.shape.mels, shape.frames)
            mel = _random(size, number, model).to(model.dtype)
            same += _alike([model.launcher.encode(mel)], [eager.encode(mel)])
        else:
            _fill(model, shape, number)
            before = [tensor.clone() for tensor in _step_tensors(model)]
            model.launcher.step(shape)
            replayed = [tensor.clone() for tensor in _step_tensors(model)]
            for kept, old in zip(_step_tensors(model), before, strict=True):
                kept.copy_(old)
            eager.step(shape)
            same += _alike(replayed, _step_tensors(model))
    _free(model)
    return same, len(captured)


def _step_tensors(model: DeviceModel) -> list[torch.Tensor]:
    """Returns the tensors that a step may change."""
    state = model.state
    return [state.ints, state.floats, state.tokens, state.best, state.self_cache]


def _fill(model: DeviceModel, shape: StepShape, seed: int) -> None:
    """Fills the rows with unfinished answers of the shape's kind, as different as possible."""
    state, special = model.state, model.special
    _free(model)
    rng = torch.Generator().manual_seed(seed)
    state.self_cache.copy_(_random(tuple(state.self_cache.shape), seed, model))
    first = 0
    while first < shape.rows:
        beams, temperature = 1, 0.0
        if shape.kind in (StepKind.BEAM, StepKind.MIXED) and first % 3 == 0:
            beams = min(5, shape.rows - first)
        elif shape.kind in (StepKind.SAMPLED, StepKind.MIXED):
            temperature = 0.7
        is_timed = shape.kind is not StepKind.PLAIN and first % 2 == 0
        most = min(shape.tokens, model.shape.text_positions) - 1
        length = int(torch.randint(2, most, (), generator=rng))
        words = torch.randint(special.end, (length,), generator=rng).tolist()
        prompt = (special.start, *(() if is_timed else (special.no_timestamps,)))
        encoder_positions = (
            shape.encoder_positions
            if shape.is_full
            else max(1, shape.encoder_positions - 7 * first)
        )
        size = (2, model.shape.decoder_layers, model.shape.decoder_heads, encoder_positions)
        audio = _random((*size, model.shape.head_width), first, model).to(model.dtype)
        limit = model.shape.text_positions
        new = NewRow(prompt, limit, is_timed, beams, temperature, seed=first)
        state.fill_rows(first, new, audio)
        rows = slice(first, first + beams)
        state.tokens[rows, len(prompt) : length + 1] = torch.tensor(
            words[: length + 1 - len(prompt)], device=state.device
        )
        state.position[rows] = max(length, len(prompt) - 1)
        if beams > 1:
            state.score[rows] = -torch.arange(beams, device=state.device) / 4
        first += beams


def _free(model: DeviceModel) -> None:
    model.state.free(0, model.state.rows)


def _random(size: tuple[int, ...], seed: int, model: DeviceModel) -> torch.Tensor:
    source = torch.Generator(model.weights.device).manual_seed(seed)
    return torch.randn(size, generator=source, device=model.weights.device)


def _alike(first: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    def close(a: torch.Tensor, b: torch.Tensor) -> bool:
        if not a.is_floating_point():
            return bool((a == b).all())
        near = torch.isclose(a.float(), b.float(), rtol=_CLOSE, atol=_CLOSE, equal_nan=True)
        return bool(near.all())

    return all(close(a, b) for a, b in zip(first, other, strict=True))
