"""Whisper through CTranslate2: any faster-whisper model directory, several utterances per call.

Features and tokens come from faster-whisper; batching, padding and rejection are ours.
"""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import exp
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from msgspec import DecodeError, Meta, Struct
from msgspec.json import decode as decode_json

from core.audio import Pcm
from core.errors import ConfigError, EngineMissing
from engines.asr.whisper_windows import Features, Padding, segments, stack, window_frames
from engines.base import AsrInfo, AsrItem, AsrResult

REQUIRES = {
    "faster_whisper": "faster-whisper",
    "ctranslate2": "ctranslate2",
    "tokenizers": "tokenizers",
}

_NAME = "faster_whisper"

SILENCE_PEAK = 16
"-66 dBFS: below any microphone's own noise. Whisper invents words for digital silence."

MAX_PROMPT_TOKENS = 223
"Half of the decoder's 448 positions, less one; the rest is for the answer."

_MAX_TOKENS, _SPARE_TOKENS, _TOKENS_PER_S = 448, 24, 25
"An answer longer than fast speech is a loop that the decoder cannot leave: it is stopped there."

_SILENT_TAIL = 480
"Zeros that make the last mel frame one of pure silence: three hops, more than one FFT."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    model: str
    "Folder of a converted model: model.bin, config.json, tokenizer.json."
    device: Literal["auto", "cpu", "cuda"] = "auto"
    compute_type: str | None = None
    "CTranslate2's. None: float16 on a GPU; on a CPU int8, as good as float32, smaller and faster."
    cpu_threads: Annotated[int, Meta(ge=0, le=256)] = 0
    "0 lets CTranslate2 choose."
    beam_size: Annotated[int, Meta(ge=1, le=10)] = 1
    "1 is greedy: the fastest, and within some tenths of a percent."
    padding: Padding | None = None
    "None: what the model's own earshot.json says, otherwise max."
    max_batch: Annotated[int, Meta(ge=1, le=64)] = 8
    no_speech_threshold: Annotated[float, Meta(ge=0, le=1)] = 0.6
    "Above it, and unsure of the words too: rejected as no speech."
    log_prob_threshold: Annotated[float, Meta(le=0)] = -1.0
    "Mean log probability per token below which the words are unsure."
    min_confidence: Annotated[float, Meta(ge=0, le=1)] | None = None
    "Less sure words are rejected. None: what earshot.json says, otherwise 0.25."
    max_compression_ratio: Annotated[float, Meta(gt=1)] = 2.4
    "Text that compresses better than this is a loop, and rejected."


class ModelNotes(Struct, frozen=True, forbid_unknown_fields=True):
    """`earshot.json` in a model's folder: what is known of these weights."""

    padding: Padding = "max"
    "nopad marks weights that were trained on short windows."
    min_confidence: Annotated[float, Meta(ge=0, le=1)] = 0.25
    "Small models are sure of everything: what separates speech from noise differs by model."


@dataclass(frozen=True, slots=True)
class _Segment:
    """A part of one item that fits a window."""

    item: int
    pcm: Pcm
    features: Features
    "The last frame is silence."
    prompt: tuple[int, ...]
    language: str | None


@dataclass(frozen=True, slots=True)
class _Scored:
    text: str
    confidence: float
    language: str
    is_rejected: bool
    samples: int


class FasterWhisper:
    """An `AsrModel`. A language that it does not know is treated as None: it decides itself."""

    def __init__(
        self, model: Any, tokenizer: Any, extractor: Any, notes: ModelNotes, settings: Settings
    ) -> None:
        self._model, self._tokenizer, self._extractor = model, tokenizer, extractor
        self._notes, self._settings = notes, settings
        self.info = AsrInfo(
            name=_NAME,
            model=Path(settings.model).name,
            languages=_languages(tokenizer) if model.is_multilingual else ("en",),
            max_batch=settings.max_batch,
            is_incremental=False,
        )

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """See `AsrModel.decode`. Utterances beyond 30 s become several windows."""
        waiting = [s for index, item in enumerate(items) for s in self._segments(index, item)]
        waiting.sort(key=lambda segment: len(segment.prompt))  # one call takes one prompt length
        done: list[tuple[int, _Scored]] = []
        for _, group in groupby(waiting, key=lambda segment: len(segment.prompt)):
            batch = list(group)
            for start in range(0, len(batch), self.info.max_batch):
                part = batch[start : start + self.info.max_batch]
                done += zip((segment.item for segment in part), self._run(part), strict=True)
        return [
            self._join([scored for owner, scored in done if owner == index], item)
            for index, item in enumerate(items)
        ]

    def forget(self, utterance: str) -> None:
        """Nothing is cached."""

    def close(self) -> None:
        self._model.unload_model()

    def _segments(self, index: int, item: AsrItem) -> Iterator[_Segment]:
        prompt = self._prompt(item.prompt)
        language = item.language if item.language in self.info.languages else None
        for pcm in segments(item.pcm):
            if np.abs(pcm.astype(np.int32)).max() >= SILENCE_PEAK:
                yield _Segment(index, pcm, self._features(pcm), prompt, language)

    def _prompt(self, text: str) -> tuple[int, ...]:
        if not text.strip():
            return ()
        tokens = self._tokenizer.encode(f" {text.strip()}")[-MAX_PROMPT_TOKENS:]
        return (self._tokenizer.sot_prev, *tokens)

    def _features(self, pcm: Pcm) -> Features:
        samples = np.concatenate([pcm, np.zeros(_SILENT_TAIL, np.int16)]).astype(np.float32)
        features: Features = self._extractor(samples / 32768, padding=0).astype(np.float32)
        return features

    def _run(self, batch: Sequence[_Segment]) -> list[_Scored]:
        longest = max(len(segment.pcm) for segment in batch)
        frames = window_frames(longest, self._notes.padding)
        encoded = self._model.encode(
            _storage(stack([segment.features for segment in batch], frames))
        )
        languages = self._languages(batch, encoded)
        prompts = [
            self._start(segment, language)
            for segment, language in zip(batch, languages, strict=True)
        ]
        answers = self._model.generate(
            encoded,
            prompts,
            beam_size=self._settings.beam_size,
            max_length=_max_length(len(prompts[0]), longest / self._extractor.sampling_rate),
            return_scores=True,
            return_no_speech_prob=True,
        )
        return [
            self._score(answer, segment, language)
            for answer, segment, language in zip(answers, batch, languages, strict=True)
        ]

    def _languages(self, batch: Sequence[_Segment], encoded: Any) -> list[str]:
        if not self._model.is_multilingual:
            return ["en"] * len(batch)
        if all(segment.language for segment in batch):
            return [segment.language or "en" for segment in batch]
        detected = [best[0][0].strip("<|>") for best in self._model.detect_language(encoded)]
        return [s.language or found for s, found in zip(batch, detected, strict=True)]

    def _start(self, segment: _Segment, language: str) -> list[int]:
        tokens = [*segment.prompt, self._tokenizer.sot]
        if self._model.is_multilingual:
            tokens.append(self._tokenizer.tokenizer.token_to_id(f"<|{language}|>"))
            tokens.append(self._tokenizer.transcribe)
        return [*tokens, self._tokenizer.no_timestamps]

    def _score(self, answer: Any, segment: _Segment, language: str) -> _Scored:
        tokens = answer.sequences_ids[0]
        text = self._tokenizer.decode(tokens).strip()
        # The library divides by the tokens without the end token, whose probability is in the sum.
        log_prob = answer.scores[0] * len(tokens) / (len(tokens) + 1)
        confidence = min(exp(log_prob), 1.0)
        settings = self._settings
        is_rejected = bool(text) and (
            confidence < self._notes.min_confidence
            or _compression_ratio(text) > settings.max_compression_ratio
            or (
                answer.no_speech_prob > settings.no_speech_threshold
                and log_prob < settings.log_prob_threshold
            )
        )
        return _Scored(text, confidence, language, is_rejected, len(segment.pcm))

    def _join(self, parts: Sequence[_Scored], item: AsrItem) -> AsrResult:
        """One item's windows as one result; windows without speech say nothing."""
        spoken = [part for part in parts if part.text and not part.is_rejected]
        judged = spoken or parts
        if not judged:
            known = item.language if item.language in self.info.languages else None
            return AsrResult("", 0.0, known or self.info.languages[0])
        samples = sum(part.samples for part in judged)
        return AsrResult(
            text=" ".join(part.text for part in spoken),
            confidence=sum(part.confidence * part.samples for part in judged) / samples,
            language=judged[0].language,
            is_rejected=not spoken and any(part.is_rejected for part in parts),
        )


def create(settings: Settings) -> FasterWhisper:
    """Raises EngineMissing when the folder has no weights, ConfigError when it cannot be used so.

    Reads only that folder: without its tokenizer faster-whisper itself would download one.
    """
    folder = Path(settings.model)
    missing = [
        n for n in ("model.bin", "config.json", "tokenizer.json") if not (folder / n).exists()
    ]
    if missing:
        raise EngineMissing("asr", _NAME, f"no {', '.join(missing)} in {folder}")
    notes = _notes(folder, settings)

    from ctranslate2 import get_cuda_device_count
    from ctranslate2.models import Whisper
    from faster_whisper.feature_extractor import FeatureExtractor
    from faster_whisper.tokenizer import Tokenizer
    from tokenizers import Tokenizer as TokenizerFile

    on_gpu = settings.device == "cuda" or (settings.device == "auto" and get_cuda_device_count())
    try:
        model = Whisper(
            str(folder),
            device="cuda" if on_gpu else "cpu",
            compute_type=settings.compute_type or ("float16" if on_gpu else "int8"),
            intra_threads=settings.cpu_threads,
        )
    except (RuntimeError, ValueError) as exc:
        raise ConfigError(f"asr.{_NAME}: cannot load {folder}: {exc}") from exc
    file = TokenizerFile.from_file(str(folder / "tokenizer.json"))
    tokenizer = Tokenizer(file, model.is_multilingual, task="transcribe", language="en")
    return FasterWhisper(model, tokenizer, FeatureExtractor(model.n_mels), notes, settings)


def _languages(tokenizer: Any) -> tuple[str, ...]:
    """The tokens between start of transcript and the tasks, in the model's own order."""
    first, end = (
        tokenizer.sot + 1,
        min(tokenizer.transcribe, tokenizer.tokenizer.token_to_id("<|translate|>")),
    )
    return tuple(tokenizer.tokenizer.id_to_token(i).strip("<|>") for i in range(first, end))


def _notes(folder: Path, settings: Settings) -> ModelNotes:
    """The model's own notes, with the settings' choices on top."""
    file = folder / "earshot.json"
    try:
        notes = decode_json(file.read_bytes() if file.exists() else b"{}", type=ModelNotes)
    except DecodeError as exc:
        raise ConfigError(f"{file}: {exc}") from exc
    if settings.padding == "nopad" and notes.padding != "nopad":
        raise ConfigError(
            f"asr.{_NAME}: padding nopad needs weights trained on short windows, and {folder} is "
            "not marked as such; allowed: max, bucket, longest"
        )
    confidence = settings.min_confidence
    return ModelNotes(
        padding=settings.padding or notes.padding,
        min_confidence=notes.min_confidence if confidence is None else confidence,
    )


def _storage(features: Features) -> Any:
    from ctranslate2 import StorageView

    return StorageView.from_array(np.ascontiguousarray(features))


def _max_length(prompt_tokens: int, duration_s: float) -> int:
    return min(_MAX_TOKENS, prompt_tokens + _SPARE_TOKENS + int(duration_s * _TOKENS_PER_S))


def _compression_ratio(text: str) -> float:
    data = text.encode()
    return len(data) / len(zlib.compress(data))
