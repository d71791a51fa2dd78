"""The engine itself around a model of random weights: from samples to results with text."""

import json
from collections.abc import Sequence
from dataclasses import replace
from math import inf
from pathlib import Path

from tokenizers import Tokenizer as Table

from bench.server.whisper_tokens import whisper_tokens
from engines.asr.whisper.alignment import CrossAttentionAligner
from engines.asr.whisper.decode import DecodePolicy
from engines.asr.whisper.rules import DecodeRules
from engines.asr.whisper.temperature_fallback import WindowTask
from engines.asr.whisper.tokenizer import Tokenizer
from engines.asr.whisper_torch.batching.engine_thread import DeviceThread
from engines.asr.whisper_torch.batching.kv_cache import NewRow
from engines.asr.whisper_torch.batching.request import DecodeProgramFactory
from engines.asr.whisper_torch.batching.word_alignment import TokenAligner
from engines.asr.whisper_torch.engine import WhisperTorch
from engines.asr.whisper_torch.network.device import DeviceModel
from engines.base import AsrInfo

TOKENS_PER_S = 4
"Of speech: what is said in a second is about three words."

_ALL_COUNT = DecodeRules(
    padding="bucket",
    log_prob_threshold=-inf,
    no_speech_threshold=inf,
    min_confidence=0.0,
    max_compression_ratio=inf,
)


def speaking(model: DeviceModel) -> WhisperTorch:
    """Started. Its words are made up, its special tokens real; it takes all it hears for speech."""
    tokens = whisper_tokens(Path("/nowhere"), model.shape.mels == 128)
    table = Table.from_str(json.dumps(tokens.tokenizer))
    tokenizer = Tokenizer(table, is_multilingual=True)
    info = AsrInfo("whisper_torch", "random", ("en",), model.capacity, False, supports=("task",))
    aligner = CrossAttentionAligner(TokenAligner(model), table, True)
    courses = _FixedLengthCourses(
        model, DecodePolicy(tokenizer, aligner, info, _ALL_COUNT), tokenizer
    )
    loop = DeviceThread(model.rows, model.launcher, model.weights.device)
    loop.start()
    return WhisperTorch(info, courses, loop)


class _FixedLengthCourses(DecodeProgramFactory):
    """Random weights end nowhere: each answer has as many tokens as speech of its length."""

    def _rows(
        self, question: WindowTask, temperature: float, seed: int, most: int
    ) -> Sequence[NewRow]:
        most = min(most, max(4, round(TOKENS_PER_S * question.duration_s)))
        end = self._device.special.end
        return [
            replace(row, suppressed=(*(row.suppressed or ()), end))
            for row in super()._rows(question, temperature, seed, most)
        ]
