"""Decodes a batch of windows, each by its own options; retries failures at higher temperatures."""

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from math import exp
from typing import Any

import numpy as np

from engines.asr.whisper.features import Features
from engines.asr.whisper.prompt import MAX_ANSWER_TOKENS, MAX_TOKENS, DecoderPrompt
from engines.asr.whisper.short_windows import max_trusted_tokens

BEST_OF = 5
"Samples per temperature above 0; the most probable one is taken."

_TIMED_TOKEN_PROBABILITY = 0.7
"""Mean probability of a token when every word is certain, for answers with timestamps: the time
where a word ends never is. Measured on our own model: commands have 0.55 to 0.75, almost all noise
and music have less."""

_SPARE_TOKENS, _TOKENS_PER_S = 24, 25
"Limit for the length of an answer, above that of fast speech."


@dataclass(frozen=True, slots=True)
class FallbackThresholds:
    """Scores at which an answer fails, as in faster-whisper."""

    compression_ratio: float
    log_prob: float
    no_speech: float


@dataclass(frozen=True, slots=True)
class WindowTask:
    """The request to decode one window."""

    row: int
    "Index of the window in the encoded batch."
    prompt: DecoderPrompt
    beam_size: int
    temperatures: tuple[float, ...]
    thresholds: FallbackThresholds
    duration_s: float
    "Length of the audio in the window."
    is_guarded: bool = False
    "True: the window is short, and doubtful text is decoded again in 30 s."

    @property
    def loop_limit_tokens(self) -> int:
        """Length at which decoding stops: a longer answer is probably an endless loop."""
        if self.is_guarded:
            limit = max_trusted_tokens(self.duration_s)
        else:
            limit = min(MAX_ANSWER_TOKENS, _SPARE_TOKENS + int(self.duration_s * _TOKENS_PER_S))
        return max(1, limit - self.prompt.former_tokens)


@dataclass(frozen=True, slots=True)
class WindowResult:
    """The answer for one window, with the scores that decide whether it is accepted."""

    tokens: tuple[int, ...]
    text: str
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    temperature: float
    confidence: float
    "Mean probability of a token, as if there were no timestamps among them."


@dataclass(frozen=True, slots=True)
class DecoderOutput:
    """Tokens and scores from a decoder, before they are turned into text."""

    tokens: tuple[int, ...]
    avg_logprob: float
    "Mean log probability of the tokens, end token included."
    no_speech_prob: float


class EncoderOutput:
    """Output of one call of CTranslate2's encoder, one row per window."""

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


class FallbackDecoder:
    """Runs one model's decoder on CTranslate2.

    suppressed: tokens that are never written.
    """

    def __init__(self, model: Any, tokenizer: Any, suppressed: Sequence[int]) -> None:
        self._model, self._tokenizer = model, tokenizer
        self._suppressed = list(suppressed)

    def decode(
        self, encoded: EncoderOutput, window_tasks: Sequence[WindowTask]
    ) -> list[WindowResult]:
        """Returns one result per task, in order. No result depends on other tasks."""
        tried: list[list[WindowResult]] = [[] for _ in window_tasks]
        waiting = list(range(len(window_tasks)))
        while waiting:
            attempts = [
                (i, window_tasks[i], _temperature(window_tasks[i], tried[i])) for i in waiting
            ]
            for group in _batchable(attempts):
                self._decode_group(encoded, group, tried)
            waiting = [i for i in waiting if needs_fallback(window_tasks[i], tried[i])]
        return [
            best_result(window_task, results)
            for window_task, results in zip(window_tasks, tried, strict=True)
        ]

    def _decode_group(
        self,
        encoded: EncoderOutput,
        group: Sequence[tuple[int, WindowTask, float]],
        tried: Sequence[list[WindowResult]],
    ) -> None:
        """Decodes a group at one temperature and adds the answers to `tried`.

        Decoding stops early at a length that only loops should reach. The few answers of that
        length that are no loops are decoded again without that limit, or, if the window was short,
        in a window of 30 s.
        """
        limit = max(window_task.loop_limit_tokens for _, window_task, _ in group)
        unfinished = []
        for entry, result in zip(group, self._generate(encoded, group, limit), strict=True):
            index, window_task, _ = entry
            loop_limit = window_task.loop_limit_tokens
            if len(result.tokens) >= loop_limit:
                truncated = truncate_result(self._tokenizer, result, loop_limit)
                if window_task.is_guarded or is_loop(truncated, window_task):
                    result = truncated
                elif limit <= len(result.tokens) and limit < MAX_ANSWER_TOKENS:
                    unfinished.append(entry)
                    continue
            tried[index].append(result)
        if unfinished:
            repeated = self._generate(encoded, unfinished, MAX_ANSWER_TOKENS)
            for (index, _, _), result in zip(unfinished, repeated, strict=True):
                tried[index].append(result)

    def _generate(
        self, encoded: EncoderOutput, group: Sequence[tuple[int, WindowTask, float]], limit: int
    ) -> list[WindowResult]:
        _, first, temperature = group[0]
        sampling = {
            "beam_size": 1,
            "num_hypotheses": BEST_OF,
            "sampling_topk": 0,
            "sampling_temperature": temperature,
        }
        prompts = [list(window_task.prompt.tokens) for _, window_task, _ in group]
        results = self._model.generate(
            encoded.rows([window_task.row for _, window_task, _ in group]),
            prompts,
            max_length=min(MAX_TOKENS, max(2 * limit, limit + len(prompts[0]))),
            return_scores=True,
            return_no_speech_prob=True,
            suppress_tokens=self._suppressed,
            # After known words there may be nothing more: a pause, or noise.
            suppress_blank=not first.prompt.former_tokens,
            **(sampling if temperature else {"beam_size": first.beam_size}),
        )
        return [
            self._window_result(result, temperature, window_task.prompt)
            for result, (_, window_task, _) in zip(results, group, strict=True)
        ]

    def _window_result(
        self, result: Any, temperature: float, prompt: DecoderPrompt
    ) -> WindowResult:
        written = result.sequences_ids[0]
        # The library repeats words of the prompt in its answer, without a share in the scores.
        tokens = tuple(written[prompt.former_tokens :])
        # It divides by the number of tokens without the end token, though the sum includes its
        # probability.
        log_prob = result.scores[0] * len(written) / (len(tokens) + 1)
        output = DecoderOutput(tokens, log_prob, result.no_speech_prob)
        return window_result(
            self._tokenizer, output, temperature, certain_token_probability(prompt)
        )


def window_result(
    tokenizer: Any, output: DecoderOutput, temperature: float, certain_probability: float
) -> WindowResult:
    """Returns the result of a window.

    certain_probability: mean probability of a token if every word is certain.
    """
    text = tokenizer.decode(output.tokens)
    return WindowResult(
        tokens=output.tokens,
        text=text,
        avg_logprob=output.avg_logprob,
        compression_ratio=compression_ratio(text.strip()),
        no_speech_prob=output.no_speech_prob,
        temperature=temperature,
        confidence=min(exp(output.avg_logprob) / certain_probability, 1.0),
    )


def truncate_result(tokenizer: Any, result: WindowResult, tokens: int) -> WindowResult:
    """Returns the answer cut to `tokens` tokens, with confidence 0.

    Where it really ended depends on the other windows of the batch.
    """
    text = tokenizer.decode(result.tokens[:tokens])
    return replace(
        result,
        tokens=result.tokens[:tokens],
        text=text,
        compression_ratio=compression_ratio(text.strip()),
        confidence=0.0,
    )


def certain_token_probability(prompt: DecoderPrompt) -> float:
    """Returns the mean probability of a token if every word is certain."""
    return _TIMED_TOKEN_PROBABILITY if prompt.has_timestamps else 1.0


def compression_ratio(text: str) -> float:
    """Returns the compression ratio of a text; it is high if the text repeats itself."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def _temperature(window_task: WindowTask, tried: Sequence[WindowResult]) -> float:
    return window_task.temperatures[len(tried)]


def _batchable(
    entries: Iterable[tuple[int, WindowTask, float]],
) -> Iterable[list[tuple[int, WindowTask, float]]]:
    """Yields groups of entries that one decoder call can take together."""

    def kind(entry: tuple[int, WindowTask, float]) -> tuple[Any, ...]:
        _, window_task, temperature = entry
        beam = 0 if temperature else window_task.beam_size
        prompt = window_task.prompt
        return prompt.shape, prompt.former_tokens, prompt.has_timestamps, beam, temperature

    for _, group in groupby(sorted(entries, key=kind), key=kind):
        yield list(group)


def is_loop(result: WindowResult, window_task: WindowTask) -> bool:
    """Returns True if the text repeats itself."""
    return result.compression_ratio > window_task.thresholds.compression_ratio


def needs_fallback(window_task: WindowTask, tried: Sequence[WindowResult]) -> bool:
    """Returns True if the last answer failed and there is a further temperature.

    tried: results at the temperatures so far.
    """
    return len(tried) < len(window_task.temperatures) and _fails(window_task, tried[-1])


def _fails(window_task: WindowTask, result: WindowResult) -> bool:
    """Returns True for a loop, and for unsure words unless they are probably no speech."""
    limits = window_task.thresholds
    is_unsure = result.avg_logprob < limits.log_prob
    if is_unsure and result.no_speech_prob > limits.no_speech:
        return False
    return is_unsure or is_loop(result, window_task)


def best_result(window_task: WindowTask, tried: Sequence[WindowResult]) -> WindowResult:
    """Returns the last answer if it did not fail, else the most probable one that is no loop.

    If all are loops, the most probable one.
    """
    if not _fails(window_task, tried[-1]):
        return tried[-1]
    without_loops = [result for result in tried if not is_loop(result, window_task)]
    return max(without_loops or tried, key=lambda result: result.avg_logprob)
