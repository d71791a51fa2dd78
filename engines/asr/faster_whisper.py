"""Engine for Whisper on CTranslate2: any faster-whisper model folder, several utterances per call.

The text is the same as that of faster-whisper's own `transcribe`. Batching, padding, rejection and
the caching of features are ours (`engines/asr/whisper/`).
"""

import struct
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from itertools import groupby
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np

from engines.asr.whisper.decode import DecodePolicy, DecodeRules, ItemDecode, has_sound
from engines.asr.whisper.device import load_whisper
from engines.asr.whisper.features import LogMelExtractor, normalized_window
from engines.asr.whisper.model_info import ModelNotes, Settings, decode_rules, describe, read_notes
from engines.asr.whisper.prompt import choose_language
from engines.asr.whisper.temperature_fallback import EncoderOutput, FallbackDecoder
from engines.asr.whisper.tokenizer import Tokenizer
from engines.asr.whisper.word_timestamps import CrossAttentionAligner
from engines.base import AsrInfo, AsrItem, AsrPadding, AsrResult

_VARIABLE = b"decoder/layer_norm/gamma\0"
"""Variable that identifies the weights. It is small, every conversion keeps its values, also one to
int8, and training the model further changes them."""

_NUMBER_TYPES: Mapping[int, np.dtype[Any]] = {0: np.dtype("<f4"), 4: np.dtype("<f2")}
"Codes of CTranslate2 for the number types that keep the values: float32 and float16."

_MEASURED = {
    "90260de0c720b70462c79acd155a3ce2c8345104753abe97525996ce84495188": "tiny.en",
    "15846008e13e08cd25e892799cc9284617c1fd92cf71fa7c3738690ff2f87511": "base",
}
"Weights that are as good in short windows as in 30 s, by `fingerprint`."


def is_measured(model_file: Path) -> bool:
    """Returns True if short windows were measured with these weights.

    model_file: CTranslate2's `model.bin`.
    """
    return fingerprint(model_file) in _MEASURED


def fingerprint(model_file: Path) -> str | None:
    """Returns the hash of one variable as float16; None if the file does not have it in this form.

    OpenAI published its weights as float16, so other number types add nothing.
    """
    try:
        with model_file.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            at = content.find(_VARIABLE)
            if at < 0:
                return None
            rank, size, code, length = struct.unpack_from("<BIBI", content, at + len(_VARIABLE))
            kind = _NUMBER_TYPES.get(code)
            if rank != 1 or kind is None or length != size * kind.itemsize:
                return None
            begin = at + len(_VARIABLE) + 10
            values = np.frombuffer(content[begin : begin + length], kind)
    except (OSError, ValueError, struct.error):  # the loader says what is wrong with the file
        return None
    return sha256(values.astype("<f2").tobytes()).hexdigest()


__all__ = ["REQUIRES", "FasterWhisper", "ModelNotes", "Settings", "create", "describe"]

REQUIRES = {
    "faster_whisper": "faster-whisper",
    "ctranslate2": "ctranslate2",
    "tokenizers": "tokenizers",
}


class FasterWhisper:
    """An `AsrModel` on CTranslate2. It detects the language if it lacks the requested one."""

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
        self._decoder = FallbackDecoder(whisper.model, tokenizer, tokenizer.suppressed)
        aligner = CrossAttentionAligner(whisper.model, tokenizer.tokenizer, "task" in info.supports)
        self._policy = DecodePolicy(tokenizer, aligner, info, rules)

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Returns one result per item (see `AsrModel.decode`). No result depends on other items.

        Raises EngineError for an item that is too long, RequestError for a bad prefix (see
        `check_prefix`).
        """
        for item in items:
            self._policy.check(item)
        item_decodes = [self._item_decode(item) for item in items]
        waiting = [item_decode for item_decode in item_decodes if item_decode.powers.size]
        while waiting:
            for batch, frames in self._batches(waiting):
                self._decode_windows(batch, frames)
            waiting = [item_decode for item_decode in waiting if item_decode.is_open]
        return [item_decode.result(self._policy.unknown_language) for item_decode in item_decodes]

    def forget(self, utterance: str) -> None:
        """Drops the cached features of an utterance."""
        self._features.forget(utterance)

    def close(self) -> None:
        """Frees the weights."""
        self._model.unload_model()

    def _item_decode(self, item: AsrItem) -> ItemDecode:
        powers = np.zeros((0, 0), np.float32)
        if has_sound(item):
            powers = self._features.powers(item.pcm, item.utterance)
        if item.is_final:
            self._features.forget(item.utterance)
        return self._policy.start_item(item, powers)

    def _batches(
        self, item_decodes: Iterable[ItemDecode]
    ) -> Iterable[tuple[list[ItemDecode], int]]:
        """Yields (at most `max_batch` items, length of their next windows in mel frames)."""
        for length, group in groupby(sorted(item_decodes, key=_frames), key=_frames):
            same_length = list(group)
            for start in range(0, len(same_length), self.info.max_batch):
                yield same_length[start : start + self.info.max_batch], length

    def _decode_windows(self, item_decodes: Sequence[ItemDecode], frames: int) -> None:
        """Decodes the next window of each item. frames: length of the windows in mel frames."""
        windows = [
            normalized_window(item_decode.powers, frames, item_decode.seek)
            for item_decode in item_decodes
        ]
        encoded = EncoderOutput(self._model, windows)
        self._detect_languages(item_decodes, encoded)
        window_tasks = [
            self._policy.window_task(row, item_decode)
            for row, item_decode in enumerate(item_decodes)
        ]
        results = self._decoder.decode(encoded, window_tasks)
        for item_decode, window_task, result in zip(
            item_decodes, window_tasks, results, strict=True
        ):
            self._policy.add_result(item_decode, window_task, result, encoded)

    def _detect_languages(self, item_decodes: Sequence[ItemDecode], encoded: EncoderOutput) -> None:
        rows = [
            row
            for row, item_decode in enumerate(item_decodes)
            if item_decode.language_detection is None
        ]
        if rows:
            detections = self._model.detect_language(encoded.rows(rows))
            for row, candidates in zip(rows, detections, strict=True):
                item_decodes[row].language_detection = choose_language(
                    candidates, item_decodes[row].options.languages
                )


def create(settings: Settings) -> FasterWhisper:
    """Returns the engine with its weights loaded.

    Raises EngineMissing if the folder has no weights, ConfigError if they do not fit the settings.
    Only that folder is read: without a tokenizer there faster-whisper would download one.
    """
    info = describe(settings)
    folder = Path(settings.model)

    from faster_whisper.feature_extractor import FeatureExtractor

    whisper = load_whisper(folder, settings)
    usual_padding: AsrPadding = "longest" if is_measured(folder / "model.bin") else "max"
    tokenizer = Tokenizer(whisper.hf_tokenizer, "task" in info.supports)
    return FasterWhisper(
        whisper=whisper,
        tokenizer=tokenizer,
        extractor=FeatureExtractor(whisper.model.n_mels),
        info=info,
        rules=decode_rules(settings, read_notes(folder, settings), usual_padding),
    )


def _frames(item_decode: ItemDecode) -> int:
    return item_decode.next_window_frames
