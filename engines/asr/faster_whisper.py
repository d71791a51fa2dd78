"""Whisper through CTranslate2: any faster-whisper model folder, several utterances per call.

Text is that of faster-whisper's own `transcribe`; batching, padding, rejection and features that
are computed once are ours (`engines/asr/whisper/`).
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from core.audio import ASR_RATE_HZ, samples_to_ms
from core.errors import EngineError
from engines.asr.whisper.alignment import Aligner, Voice
from engines.asr.whisper.description import describe
from engines.asr.whisper.device import load_whisper
from engines.asr.whisper.encoded import Encoded
from engines.asr.whisper.features import LogMel, normalised
from engines.asr.whisper.language import Spoken, choose
from engines.asr.whisper.part import Part
from engines.asr.whisper.prompt import Prompts
from engines.asr.whisper.search import Answer, Question, Search, Thresholds
from engines.asr.whisper.segments import FRAME_S, cut, last_end_s
from engines.asr.whisper.settings import NAME, ModelNotes, Settings, paddings, read_notes
from engines.asr.whisper.windows import (
    FRAME_SAMPLES,
    MAX_ITEM_MS,
    MAX_ITEM_SAMPLES,
    window_frames,
)
from engines.base import AsrInfo, AsrItem, AsrResult, Word

__all__ = ["REQUIRES", "FasterWhisper", "ModelNotes", "Settings", "create", "describe"]

REQUIRES = {
    "faster_whisper": "faster-whisper",
    "ctranslate2": "ctranslate2",
    "tokenizers": "tokenizers",
}

SILENCE_PEAK = 16
"-66 dBFS: below any microphone's own noise. Whisper invents words for digital silence."


class FasterWhisper:
    """An `AsrModel`. A language that it does not know is treated as None: it decides itself."""

    def __init__(
        self,
        whisper: Any,
        tokenizer: Any,
        extractor: Any,
        suppressed: Sequence[int],
        info: AsrInfo,
        notes: ModelNotes,
        settings: Settings,
    ) -> None:
        self.info = info
        self._model, self._tokenizer = whisper.model, tokenizer
        self._notes, self._settings = notes, settings
        is_multilingual = "task" in info.supports
        self._features = LogMel(extractor)
        self._prompts = Prompts(tokenizer, info.languages, is_multilingual)
        self._search = Search(whisper.model, tokenizer, suppressed)
        self._aligner = Aligner(whisper, is_multilingual)

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """See `AsrModel.decode`. No answer depends on the other items.

        Raises EngineError for an item that is too long, RequestError as `check_prefix`.
        """
        for item in items:
            self._check(item)
        parts = [self._part(item) for item in items]
        waiting = [part for part in parts if part.powers.size]
        while waiting:
            for batch, frames in self._batches(waiting):
                self._hear(batch, frames)
            waiting = [part for part in waiting if part.is_open]
        unknown = Spoken(self.info.languages[0], 0.0)
        return [part.result(unknown) for part in parts]

    def forget(self, utterance: str) -> None:
        self._features.forget(utterance)

    def close(self) -> None:
        self._model.unload_model()

    def _check(self, item: AsrItem) -> None:
        if len(item.pcm) > MAX_ITEM_SAMPLES:
            raise EngineError(
                "asr",
                NAME,
                f"an item of {samples_to_ms(len(item.pcm), ASR_RATE_HZ):.0f} ms; "
                f"allowed: up to {MAX_ITEM_MS:.0f}",
            )
        if item.options.prefix:
            self._prompts.prefix(item.options.prefix)

    def _part(self, item: AsrItem) -> Part:
        powers = np.zeros((0, 0), np.float32)
        if np.abs(item.pcm.astype(np.int32)).max(initial=0) >= SILENCE_PEAK:
            powers = self._features.powers(item.pcm, item.utterance)
        if item.is_final:
            self._features.forget(item.utterance)
        named = self._prompts.named_language(item.options)
        padding = item.options.padding or self._settings.padding or self._notes.padding
        if padding not in paddings(self._notes):
            padding = "longest"
        return Part(
            options=item.options,
            pcm=item.pcm,
            powers=powers,
            padding=padding,
            spoken=Spoken(named, 1.0) if named else None,
        )

    def _batches(self, parts: Iterable[Part]) -> Iterable[tuple[list[Part], int]]:
        """Those whose windows are equally long, as many as one call takes."""

        for length, group in groupby(sorted(parts, key=_frames), key=_frames):
            alike = list(group)
            for start in range(0, len(alike), self.info.max_batch):
                yield alike[start : start + self.info.max_batch], length

    def _hear(self, parts: Sequence[Part], frames: int) -> None:
        """One window of each."""
        windows = [normalised(part.powers, frames, part.seek) for part in parts]
        encoded = Encoded(self._model, windows)
        self._detect(parts, encoded)
        questions = [self._question(row, part) for row, part in enumerate(parts)]
        answers = self._search.answers(encoded, questions)
        for part, question, answer in zip(parts, questions, answers, strict=True):
            part.passes += 1
            if self._is_rejected(answer, question.thresholds):
                part.rejected.append(answer)
                part.seek = part.frames
            else:
                part.answers.append(answer)
                self._take(part, answer, encoded, question.row)

    def _detect(self, parts: Sequence[Part], encoded: Encoded) -> None:
        rows = [row for row, part in enumerate(parts) if part.spoken is None]
        if rows:
            found = self._model.detect_language(encoded.rows(rows))
            for row, candidates in zip(rows, found, strict=True):
                parts[row].spoken = choose(candidates, parts[row].options.languages)

    def _question(self, row: int, part: Part) -> Question:
        options, settings = part.options, self._settings
        no_speech = options.no_speech_threshold
        spoken = part.spoken or Spoken(self.info.languages[0], 0.0)
        return Question(
            row=row,
            start=self._prompts.start(options, spoken.language, is_first=part.seek == 0),
            beam_size=options.beam_size or settings.beam_size,
            temperatures=options.temperatures or settings.temperatures,
            thresholds=Thresholds(
                compression_ratio=settings.max_compression_ratio,
                log_prob=settings.log_prob_threshold,
                no_speech=settings.no_speech_threshold if no_speech is None else no_speech,
            ),
            duration_s=(part.frames - part.seek) / 100,
        )

    def _is_rejected(self, answer: Answer, limits: Thresholds) -> bool:
        """Noise and music: a loop, a guess, or what the model itself takes for no speech."""
        if not answer.text.strip():
            return False
        least = self._settings.min_confidence
        is_unsure = answer.avg_logprob < limits.log_prob
        return (
            answer.compression_ratio > limits.compression_ratio
            or answer.confidence < (self._notes.min_confidence if least is None else least)
            or (answer.no_speech_prob > limits.no_speech and is_unsure)
        )

    def _take(self, part: Part, answer: Answer, encoded: Encoded, row: int) -> None:
        """What an answer says, and where to go on listening."""
        language = part.spoken.language if part.spoken else "en"
        frames = part.frames - part.seek
        voice = Voice(encoded, row, frames, language, part.options.task)
        pieces, following, is_complete = cut(
            answer.tokens, self._tokenizer.timestamp_begin, part.seek, frames
        )
        words: list[list[Word]] = [[] for _ in pieces]
        if part.options.timestamps == "word" and pieces:
            words = self._aligner.words(voice, pieces, part.spoken_until_s)
            part.spoken_until_s = last_end_s(pieces)
            if not is_complete and part.spoken_until_s > pieces[0]["seek"] * FRAME_S:
                following = round(part.spoken_until_s / FRAME_S)
        for piece, said in zip(pieces, words, strict=True):
            text = self._tokenizer.decode(piece["tokens"])
            if piece["start"] != piece["end"] and text.strip():
                part.add(answer, piece, text, said)
                if part.options.token_logprobs:
                    part.tokens += self._aligner.logprobs(voice, piece["tokens"])
        part.seek = following if following > part.seek else part.frames


def create(settings: Settings) -> FasterWhisper:
    """Raises EngineMissing when the folder has no weights, ConfigError when it cannot be used so.

    Reads only that folder: without its tokenizer faster-whisper itself would download one.
    """
    info = describe(settings)
    folder = Path(settings.model)

    from faster_whisper.feature_extractor import FeatureExtractor
    from faster_whisper.tokenizer import Tokenizer
    from faster_whisper.transcribe import get_suppressed_tokens

    whisper = load_whisper(folder, settings)
    tokenizer = Tokenizer(whisper.hf_tokenizer, "task" in info.supports, "transcribe", "en")
    suppressed = get_suppressed_tokens(tokenizer, [-1]) or ()
    return FasterWhisper(
        whisper=whisper,
        tokenizer=tokenizer,
        extractor=FeatureExtractor(whisper.model.n_mels),
        suppressed=[token for token in suppressed if token is not None],
        info=info,
        notes=read_notes(folder, settings),
        settings=settings,
    )


def _frames(part: Part) -> int:
    return window_frames(len(part.pcm) - part.seek * FRAME_SAMPLES, part.padding)
