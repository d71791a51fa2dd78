"""Engine for Whisper on CTranslate2: any faster-whisper model folder, several utterances per call.

The text is the same as that of faster-whisper's own `transcribe`. Batching, padding, rejection and
the caching of features are ours (`engines/asr/whisper/`).
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from engines.asr.whisper.decode import DecodePolicy, DecodeRules, ItemDecode, has_sound
from engines.asr.whisper.device import load_whisper
from engines.asr.whisper.features import LogMelExtractor, normalized_window
from engines.asr.whisper.model_info import ModelNotes, Settings, describe, read_notes, rules_of
from engines.asr.whisper.prompt import choose
from engines.asr.whisper.temperature_fallback import EncoderOutput, FallbackDecoder
from engines.asr.whisper.tokenizer import Tokenizer
from engines.asr.whisper.windows import (
    FRAME_SAMPLES,
    window_frames,
)
from engines.asr.whisper.word_timestamps import CrossAttentionAligner
from engines.base import AsrInfo, AsrItem, AsrResult

__all__ = ["REQUIRES", "FasterWhisper", "ModelNotes", "Settings", "create", "describe"]

REQUIRES = {
    "faster_whisper": "faster-whisper",
    "ctranslate2": "ctranslate2",
    "tokenizers": "tokenizers",
}


class FasterWhisper:
    """An `AsrModel`. A requested language that the model does not know is detected instead."""

    def __init__(
        self,
        whisper: Any,
        tokenizer: Tokenizer,
        extractor: Any,
        info: AsrInfo,
        rules: DecodeRules,
    ) -> None:
        self.info = info
        self._model = whisper.model
        self._features = LogMelExtractor(extractor)
        self._search = FallbackDecoder(whisper.model, tokenizer, tokenizer.suppressed)
        aligner = CrossAttentionAligner(whisper.model, tokenizer.tokenizer, "task" in info.supports)
        self._listening = DecodePolicy(tokenizer, aligner, info, rules)

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Returns one result per item (see `AsrModel.decode`). No result depends on other items.

        Raises EngineError for an item that is too long, RequestError for a bad prefix (see
        `check_prefix`).
        """
        for item in items:
            self._listening.check(item)
        parts = [self._part(item) for item in items]
        waiting = [part for part in parts if part.powers.size]
        while waiting:
            for batch, frames in self._batches(waiting):
                self._hear(batch, frames)
            waiting = [part for part in waiting if part.is_open]
        return [part.result(self._listening.unknown) for part in parts]

    def forget(self, utterance: str) -> None:
        """Drops the cached features of an utterance."""
        self._features.forget(utterance)

    def close(self) -> None:
        """Frees the weights."""
        self._model.unload_model()

    def _part(self, item: AsrItem) -> ItemDecode:
        powers = np.zeros((0, 0), np.float32)
        if has_sound(item):
            powers = self._features.powers(item.pcm, item.utterance)
        if item.is_final:
            self._features.forget(item.utterance)
        return self._listening.part(item, powers)

    def _batches(self, parts: Iterable[ItemDecode]) -> Iterable[tuple[list[ItemDecode], int]]:
        """Yields (parts, frames): parts with windows of equal length, at most `max_batch`."""

        for length, group in groupby(sorted(parts, key=_frames), key=_frames):
            alike = list(group)
            for start in range(0, len(alike), self.info.max_batch):
                yield alike[start : start + self.info.max_batch], length

    def _hear(self, parts: Sequence[ItemDecode], frames: int) -> None:
        """Decodes the next window of each part. frames: length of the windows in mel frames."""
        windows = [normalized_window(part.powers, frames, part.seek) for part in parts]
        encoded = EncoderOutput(self._model, windows)
        self._detect(parts, encoded)
        questions = [self._listening.question(row, part) for row, part in enumerate(parts)]
        answers = self._search.answers(encoded, questions)
        for part, question, answer in zip(parts, questions, answers, strict=True):
            self._listening.take(part, question, answer, encoded)

    def _detect(self, parts: Sequence[ItemDecode], encoded: EncoderOutput) -> None:
        rows = [row for row, part in enumerate(parts) if part.spoken is None]
        if rows:
            found = self._model.detect_language(encoded.rows(rows))
            for row, candidates in zip(rows, found, strict=True):
                parts[row].spoken = choose(candidates, parts[row].options.languages)


def create(settings: Settings) -> FasterWhisper:
    """Returns the engine with its weights loaded.

    Raises EngineMissing if the folder has no weights, ConfigError if they do not fit the settings.
    Only that folder is read: without a tokenizer there faster-whisper would download one.
    """
    info = describe(settings)
    folder = Path(settings.model)

    from faster_whisper.feature_extractor import FeatureExtractor

    whisper = load_whisper(folder, settings)
    tokenizer = Tokenizer(whisper.hf_tokenizer, "task" in info.supports)
    return FasterWhisper(
        whisper=whisper,
        tokenizer=tokenizer,
        extractor=FeatureExtractor(whisper.model.n_mels),
        info=info,
        rules=rules_of(settings, read_notes(folder, settings)),
    )


def _frames(part: ItemDecode) -> int:
    return window_frames(len(part.pcm) - part.seek * FRAME_SAMPLES, part.padding)
