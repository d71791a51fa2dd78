"""The decoding of one item as a program: its windows, and the decoder's tasks for each of them."""

import zlib
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from engines.asr.whisper.decode import DecodePolicy, ItemDecode, has_sound
from engines.asr.whisper.prompt import MAX_ANSWER_TOKENS, LanguageDetection, choose
from engines.asr.whisper.temperature_fallback import (
    BEST_OF,
    DecoderOutput,
    WindowResult,
    WindowTask,
    answer_of,
    best_result,
    is_loop,
    needs_fallback,
    truncate_result,
    usual_probability,
)
from engines.asr.whisper.tokenizer import Tokenizer
from engines.asr.whisper.windows import FRAME_SAMPLES, window_frames
from engines.asr.whisper_torch.batching.engine_thread import (
    DeviceTask,
    EncodeTask,
    GenerateTask,
    SideTask,
)
from engines.asr.whisper_torch.batching.kv_cache import NewRow
from engines.asr.whisper_torch.batching.sampling import MAX_BEAM
from engines.asr.whisper_torch.batching.slots import GeneratedTokens
from engines.asr.whisper_torch.network.device import DeviceModel
from engines.asr.whisper_torch.network.features import normalized_window_tensor
from engines.base import AsrItem, AsrResult

_NO_POWERS = np.zeros((0, 0), np.float32)


class SingleWindow:
    """The encoder's output for one window, as the aligner takes it."""

    def __init__(self, encoded: torch.Tensor) -> None:
        self._encoded = encoded

    def rows(self, wanted: Sequence[int]) -> torch.Tensor:
        """Returns the window; `wanted` must be [0]."""
        assert list(wanted) == [0]
        return self._encoded


class DecodeProgramFactory:
    """Makes the decoding programs of one model."""

    def __init__(self, device: DeviceModel, listening: DecodePolicy, tokenizer: Tokenizer) -> None:
        self._device, self._listening, self._tokenizer = device, listening, tokenizer

    def course(self, item: AsrItem) -> Generator[DeviceTask, Any, AsrResult]:
        """Returns the program that decodes one item.

        Its first `next` raises the errors of `DecodePolicy.check`.
        """
        self._listening.check(item)
        part = self._listening.part(item, _NO_POWERS)
        if has_sound(item):
            powers = self._device.features.powers(item.pcm)
            seed = zlib.crc32(item.pcm.tobytes())
            yield from self._windows(part, powers, seed)
        return part.result(self._listening.unknown)

    def _windows(
        self, part: ItemDecode, powers: torch.Tensor, seed: int
    ) -> Generator[DeviceTask, Any, None]:
        while part.is_open:
            frames = window_frames(len(part.pcm) - part.seek * FRAME_SAMPLES, part.padding)
            window = normalized_window_tensor(powers, frames, part.seek).to(self._device.dtype)
            encoded = yield EncodeTask(window)
            if part.spoken is None:
                part.spoken = yield SideTask(
                    partial(self._detected, encoded, part.options.languages)
                )
            question = self._listening.question(0, part)
            answer = yield from self._answer(question, encoded, seed)
            take = partial(self._listening.take, part, question, answer, SingleWindow(encoded))
            if part.options.timestamps == "word" or part.options.token_logprobs:
                # The decoder reads its answer once more, which takes some ms. Meanwhile other
                # programs can go on.
                yield SideTask(take)
            else:
                take()

    def _detected(self, encoded: torch.Tensor, allowed: Sequence[str]) -> LanguageDetection:
        chances = self._device.languages(encoded)
        names = [self._tokenizer.tokenizer.id_to_token(token) for token in chances]
        return choose(list(zip(names, chances.values(), strict=True)), allowed)

    def _answer(
        self, question: WindowTask, encoded: torch.Tensor, seed: int
    ) -> Generator[DeviceTask, Any, WindowResult]:
        """Decodes a window at one temperature after the other, until an answer passes."""
        tried = [(yield from self._try(question, encoded, question.temperatures[0], seed))]
        while needs_fallback(question, tried):
            temperature = question.temperatures[len(tried)]
            again = seed + BEST_OF * len(tried)
            tried.append((yield from self._try(question, encoded, temperature, again)))
        return best_result(question, tried)

    def _try(
        self, question: WindowTask, encoded: torch.Tensor, temperature: float, seed: int
    ) -> Generator[DeviceTask, Any, WindowResult]:
        """Decodes a window at one temperature.

        Decoding stops early at a length that only loops should reach. The few answers of that
        length that are no loops are decoded again in full.
        """
        enough = question.enough_tokens
        rows = self._rows(question, temperature, seed, enough)
        answer = self._best((yield GenerateTask(encoded, rows)), question, temperature)
        if len(answer.tokens) < enough:
            return answer
        early = truncate_result(self._tokenizer, answer, enough)
        if is_loop(early, question) or enough == MAX_ANSWER_TOKENS:
            return early if is_loop(early, question) else answer
        rows = self._rows(question, temperature, seed, MAX_ANSWER_TOKENS)
        return self._best((yield GenerateTask(encoded, rows)), question, temperature)

    def _rows(
        self, question: WindowTask, temperature: float, seed: int, most: int
    ) -> Sequence[NewRow]:
        start = question.start
        limit = min(self._device.shape.text_positions, len(start.tokens) + most)
        widest = min(MAX_BEAM, self._device.capacity)
        return [
            NewRow(
                prompt=start.tokens,
                limit=limit,
                is_timed=start.has_timestamps,
                beam_size=1 if temperature else min(question.beam_size, widest),
                temperature=temperature,
                seed=seed + index,
                suppressed=self._tokenizer.suppressed,
            )
            for index in range(BEST_OF if temperature else 1)
        ]

    def _best(
        self, written: Sequence[GeneratedTokens], question: WindowTask, temperature: float
    ) -> WindowResult:
        one = max(written, key=lambda written: written.logprob)
        said = DecoderOutput(one.tokens, one.logprob, one.no_speech)
        return answer_of(self._tokenizer, said, temperature, usual_probability(question.start))
