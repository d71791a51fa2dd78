"""The decoding of one item as a program: its windows, and the decoder's tasks for each of them."""

import zlib
from collections.abc import Generator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from engines.asr.whisper.decode import DecodePolicy, ItemDecode, has_sound
from engines.asr.whisper.prompt import MAX_ANSWER_TOKENS, LanguageDetection, choose_language
from engines.asr.whisper.temperature_fallback import (
    BEST_OF,
    DecoderOutput,
    WindowResult,
    WindowTask,
    best_result,
    certain_token_probability,
    is_loop,
    needs_fallback,
    truncate_result,
    window_result,
)
from engines.asr.whisper.tokenizer import Tokenizer
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

    def __init__(self, device: DeviceModel, policy: DecodePolicy, tokenizer: Tokenizer) -> None:
        self._device, self._policy, self._tokenizer = device, policy, tokenizer

    def program(self, item: AsrItem) -> Generator[DeviceTask, Any, AsrResult]:
        """Returns the program that decodes one item.

        Its first `next` raises the errors of `DecodePolicy.check`.
        """
        self._policy.check(item)
        item_decode = self._policy.start_item(item, _NO_POWERS)
        if has_sound(item):
            powers = self._device.features.powers(item.pcm)
            seed = zlib.crc32(item.pcm.tobytes())
            yield from self._windows(item_decode, powers, seed)
        return item_decode.result(self._policy.unknown_language)

    def _windows(
        self, item_decode: ItemDecode, powers: torch.Tensor, seed: int
    ) -> Generator[DeviceTask, Any, None]:
        while item_decode.is_open:
            window = normalized_window_tensor(
                powers, item_decode.next_window_frames, item_decode.seek
            ).to(self._device.dtype)
            encoded = yield EncodeTask(window)
            if item_decode.language_detection is None:
                item_decode.language_detection = yield SideTask(
                    partial(self._detect_language, encoded, item_decode.options.languages)
                )
            window_task = self._policy.window_task(0, item_decode)
            result = yield from self._decode_window(window_task, encoded, seed)
            add_result = partial(
                self._policy.add_result, item_decode, window_task, result, SingleWindow(encoded)
            )
            if item_decode.options.timestamps == "word" or item_decode.options.token_logprobs:
                # The decoder reads its answer once more, which takes some ms. Meanwhile other
                # programs can go on.
                yield SideTask(add_result)
            else:
                add_result()

    def _detect_language(self, encoded: torch.Tensor, allowed: Sequence[str]) -> LanguageDetection:
        probabilities = self._device.languages(encoded)
        names = [self._tokenizer.tokenizer.id_to_token(token) for token in probabilities]
        return choose_language(list(zip(names, probabilities.values(), strict=True)), allowed)

    def _decode_window(
        self, window_task: WindowTask, encoded: torch.Tensor, seed: int
    ) -> Generator[DeviceTask, Any, WindowResult]:
        """Decodes a window at one temperature after the other, until an answer passes."""
        tried = [
            (yield from self._decode_at(window_task, encoded, window_task.temperatures[0], seed))
        ]
        while needs_fallback(window_task, tried):
            temperature = window_task.temperatures[len(tried)]
            retry_seed = seed + BEST_OF * len(tried)
            tried.append(
                (yield from self._decode_at(window_task, encoded, temperature, retry_seed))
            )
        return best_result(window_task, tried)

    def _decode_at(
        self, window_task: WindowTask, encoded: torch.Tensor, temperature: float, seed: int
    ) -> Generator[DeviceTask, Any, WindowResult]:
        """Decodes a window at one temperature.

        Decoding stops early at a length that only loops should reach. The few answers of that
        length that are no loops are decoded again in full.
        """
        loop_limit = window_task.loop_limit_tokens
        rows = self._rows(window_task, temperature, seed, loop_limit)
        result = self._best_result((yield GenerateTask(encoded, rows)), window_task, temperature)
        if len(result.tokens) < loop_limit:
            return result
        truncated = truncate_result(self._tokenizer, result, loop_limit)
        if window_task.is_guarded or is_loop(truncated, window_task):
            return truncated
        if loop_limit == MAX_ANSWER_TOKENS:
            return result
        rows = self._rows(window_task, temperature, seed, MAX_ANSWER_TOKENS)
        return self._best_result((yield GenerateTask(encoded, rows)), window_task, temperature)

    def _rows(
        self, window_task: WindowTask, temperature: float, seed: int, max_tokens: int
    ) -> Sequence[NewRow]:
        prompt = window_task.prompt
        limit = min(self._device.shape.text_positions, len(prompt.tokens) + max_tokens)
        max_beam_size = min(MAX_BEAM, self._device.capacity)
        return [
            NewRow(
                prompt=prompt.tokens,
                limit=limit,
                is_timed=prompt.has_timestamps,
                beam_size=1 if temperature else min(window_task.beam_size, max_beam_size),
                temperature=temperature,
                seed=seed + index,
                suppressed=self._tokenizer.suppressed,
            )
            for index in range(BEST_OF if temperature else 1)
        ]

    def _best_result(
        self, written: Sequence[GeneratedTokens], window_task: WindowTask, temperature: float
    ) -> WindowResult:
        best = max(written, key=lambda written: written.logprob)
        output = DecoderOutput(best.tokens, best.logprob, best.no_speech)
        return window_result(
            self._tokenizer, output, temperature, certain_token_probability(window_task.prompt)
        )
