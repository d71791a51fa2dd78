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

BEST_OF = 5
"Samples per temperature above 0; the most probable one is taken."

_WITH_TIMES = 0.7
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
    start: DecoderPrompt
    beam_size: int
    temperatures: tuple[float, ...]
    thresholds: FallbackThresholds
    duration_s: float
    "Length of the audio in the window."

    @property
    def enough_tokens(self) -> int:
        """Length at which decoding stops: a longer answer is probably an endless loop."""
        return min(MAX_ANSWER_TOKENS, _SPARE_TOKENS + int(self.duration_s * _TOKENS_PER_S))


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

    def answers(
        self, encoded: EncoderOutput, questions: Sequence[WindowTask]
    ) -> list[WindowResult]:
        """Returns one answer per question, in order. No answer depends on other questions."""
        tried: list[list[WindowResult]] = [[] for _ in questions]
        waiting = list(range(len(questions)))
        while waiting:
            round_ = [(i, questions[i], _temperature(questions[i], tried[i])) for i in waiting]
            for group in _alike(round_):
                self._ask(encoded, group, tried)
            waiting = [i for i in waiting if needs_fallback(questions[i], tried[i])]
        return [best_result(question, of) for question, of in zip(questions, tried, strict=True)]

    def _ask(
        self,
        encoded: EncoderOutput,
        group: Sequence[tuple[int, WindowTask, float]],
        tried: Sequence[list[WindowResult]],
    ) -> None:
        """Decodes a group at one temperature and adds the answers to `tried`.

        Decoding stops early at a length that only loops should reach. The few answers of that
        length that are no loops are decoded again in full.
        """
        limit = max(question.enough_tokens for _, question, _ in group)
        unfinished = []
        for entry, answer in zip(group, self._generate(encoded, group, limit), strict=True):
            index, question, _ = entry
            enough = question.enough_tokens
            if len(answer.tokens) >= enough:
                early = truncate_result(self._tokenizer, answer, enough)
                if is_loop(early, question):
                    answer = early
                elif limit <= len(answer.tokens) and limit < MAX_ANSWER_TOKENS:
                    unfinished.append(entry)
                    continue
            tried[index].append(answer)
        if unfinished:
            again = self._generate(encoded, unfinished, MAX_ANSWER_TOKENS)
            for (index, _, _), answer in zip(unfinished, again, strict=True):
                tried[index].append(answer)

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
        prompts = [list(question.start.tokens) for _, question, _ in group]
        results = self._model.generate(
            encoded.rows([question.row for _, question, _ in group]),
            prompts,
            max_length=min(MAX_TOKENS, max(2 * limit, limit + len(prompts[0]))),
            return_scores=True,
            return_no_speech_prob=True,
            suppress_tokens=self._suppressed,
            **(sampling if temperature else {"beam_size": first.beam_size}),
        )
        usual = usual_probability(first.start)
        return [self._answer(result, temperature, usual) for result in results]

    def _answer(self, result: Any, temperature: float, usual: float) -> WindowResult:
        tokens = tuple(result.sequences_ids[0])
        # The library divides by the number of tokens without the end token, though the sum
        # includes its probability.
        log_prob = result.scores[0] * len(tokens) / (len(tokens) + 1)
        said = DecoderOutput(tokens, log_prob, result.no_speech_prob)
        return answer_of(self._tokenizer, said, temperature, usual)


def answer_of(
    tokenizer: Any, said: DecoderOutput, temperature: float, usual: float
) -> WindowResult:
    """Returns the result of a window.

    usual: mean probability of a token if every word is certain.
    """
    text = tokenizer.decode(said.tokens)
    return WindowResult(
        tokens=said.tokens,
        text=text,
        avg_logprob=said.avg_logprob,
        compression_ratio=compression_ratio(text.strip()),
        no_speech_prob=said.no_speech_prob,
        temperature=temperature,
        confidence=min(exp(said.avg_logprob) / usual, 1.0),
    )


def truncate_result(tokenizer: Any, answer: WindowResult, tokens: int) -> WindowResult:
    """Returns the answer cut to `tokens` tokens, with confidence 0.

    Where it really ended depends on the other windows of the batch.
    """
    text = tokenizer.decode(answer.tokens[:tokens])
    return replace(
        answer,
        tokens=answer.tokens[:tokens],
        text=text,
        compression_ratio=compression_ratio(text.strip()),
        confidence=0.0,
    )


def usual_probability(start: DecoderPrompt) -> float:
    """Returns the mean probability of a token if every word is certain."""
    return _WITH_TIMES if start.has_timestamps else 1.0


def compression_ratio(text: str) -> float:
    """Returns the compression ratio of a text; it is high if the text repeats itself."""
    data = text.encode()
    return len(data) / len(zlib.compress(data))


def _temperature(question: WindowTask, tried: Sequence[WindowResult]) -> float:
    return question.temperatures[len(tried)]


def _alike(
    entries: Iterable[tuple[int, WindowTask, float]],
) -> Iterable[list[tuple[int, WindowTask, float]]]:
    """Yields groups of entries that one decoder call can take together."""

    def kind(entry: tuple[int, WindowTask, float]) -> tuple[Any, ...]:
        _, question, temperature = entry
        beam = 0 if temperature else question.beam_size
        return question.start.shape, question.start.has_timestamps, beam, temperature

    for _, group in groupby(sorted(entries, key=kind), key=kind):
        yield list(group)


def is_loop(answer: WindowResult, question: WindowTask) -> bool:
    """Returns True if the text repeats itself."""
    return answer.compression_ratio > question.thresholds.compression_ratio


def needs_fallback(question: WindowTask, tried: Sequence[WindowResult]) -> bool:
    """Returns True if the last answer failed and there is a further temperature."""
    return len(tried) < len(question.temperatures) and _fails(question, tried[-1])


def _fails(question: WindowTask, answer: WindowResult) -> bool:
    """Returns True for a loop, and for unsure words unless they are probably no speech."""
    limits = question.thresholds
    is_unsure = answer.avg_logprob < limits.log_prob
    if is_unsure and answer.no_speech_prob > limits.no_speech:
        return False
    return is_unsure or is_loop(answer, question)


def best_result(question: WindowTask, tried: Sequence[WindowResult]) -> WindowResult:
    """Returns the last answer if it did not fail, else the most probable one that is no loop.

    If all are loops, the most probable one.
    """
    if not _fails(question, tried[-1]):
        return tried[-1]
    sane = [answer for answer in tried if not is_loop(answer, question)]
    return max(sane or tried, key=lambda answer: answer.avg_logprob)
