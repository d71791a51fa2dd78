"""The `AsrModel` of PocketSphinx. It keeps one search open per utterance and scores its result."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from core.audio import Pcm
from engines.asr.pocketsphinx.confidence import (
    command_confidence,
    confidence_features,
    speech_confidence,
)
from engines.asr.pocketsphinx.decoder import BestPath, SphinxDecoder, SphinxDecoderFactory, WordSpan
from engines.asr.pocketsphinx.features import (
    FRAME_MS,
    LOOKAHEAD_FRAMES,
    Mel,
    cepstra,
    mel_power,
    whole_utterance_cepstra,
)
from engines.asr.pocketsphinx.language_model import TrigramModel
from engines.base import AsrInfo, AsrItem, AsrResult, Word

LANGUAGE = "en"
"The only language of the model."

SILENCE_PEAK = 32
"""Peak sample value below which audio is not decoded: -60 dBFS, below any microphone's own noise.
Normalised to full scale such noise would become words."""


INFO = AsrInfo(
    name="pocketsphinx",
    model="en-us",
    languages=(LANGUAGE,),
    max_batch=1,  # items are decoded one after another: a batch only makes the first wait
    is_incremental=True,
)
"Properties that the engine reports."

MIN_FREE_SPEECH_CONFIDENCE = 0.2
"Speech confidence of a rejected command below which free speech is not tried: most noise."


@dataclass(frozen=True, slots=True)
class ConfidenceLimits:
    """Limits of confidence, and of open searches. `Settings` describes each."""

    min_confidence: float
    min_partial_confidence: float
    min_speech_confidence: float
    second_look: float
    max_free_s: float
    decoders: int


@dataclass(frozen=True, slots=True)
class _ScoredPath:
    path: BestPath
    confidence: float


class PocketSphinx:
    """An `AsrModel` for English that decodes an utterance while it grows.

    Sound that is no English speech is rejected.
    """

    def __init__(
        self, language: TrigramModel, decoders: SphinxDecoderFactory, limits: ConfidenceLimits
    ) -> None:
        self.info = INFO
        self._language, self._decoders, self._limits = language, decoders, limits
        self._searches: OrderedDict[str, SphinxDecoder] = OrderedDict()
        self._idle_decoders = [decoders.command_decoder()]
        self._free_decoder = decoders.free_speech_decoder() if limits.max_free_s else None

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Returns one result per item (see `AsrModel.decode`)."""
        return [self._decode(item) for item in items]

    def forget(self, utterance: str) -> None:
        """Closes the search of an utterance, if it is open."""
        decoder = self._searches.pop(utterance, None)
        if decoder is not None:
            decoder.stop()
            self._idle_decoders.append(decoder)

    def close(self) -> None:
        """Closes all searches and removes the files."""
        for utterance in list(self._searches):
            self.forget(utterance)
        self._idle_decoders.clear()
        self._free_decoder = None
        self._decoders.close()

    def _decode(self, item: AsrItem) -> AsrResult:
        if _peak(item.pcm) < SILENCE_PEAK:
            if item.is_final:
                self.forget(item.utterance)
            return AsrResult("", 0.0, LANGUAGE)
        mel = mel_power(item.pcm)
        if item.is_final:
            return self._final(item, mel)
        if len(mel) < LOOKAHEAD_FRAMES:
            return AsrResult("", 0.0, LANGUAGE)
        scored = self._score_command(self._search_path(item, mel), mel, is_whole=False)
        if scored.confidence < self._limits.min_partial_confidence:
            return AsrResult("", scored.confidence, LANGUAGE)
        return _result(scored)

    def _final(self, item: AsrItem, mel: Mel) -> AsrResult:
        limits = self._limits
        try:
            scored = self._score_command(self._search_path(item, mel), mel, is_whole=True)
            if scored.confidence < limits.second_look:
                repeated = self._search_of(item.utterance).decode(whole_utterance_cepstra(mel))
                repeated_score = self._score_command(repeated, mel, is_whole=True)
                scored = max(scored, repeated_score, key=lambda each: each.confidence)
        finally:
            self.forget(item.utterance)
        if scored.confidence >= limits.min_confidence:
            return _result(scored)
        free_path = self._score_free_speech(scored.path, mel)
        if free_path.confidence >= limits.min_speech_confidence:
            return _result(free_path)
        if item.options.no_speech_threshold == 1:  # the caller wants even unsure text
            return _result(scored)
        return AsrResult("", scored.confidence, LANGUAGE, is_rejected=bool(scored.path.spans))

    def _score_command(self, path: BestPath, mel: Mel, *, is_whole: bool) -> _ScoredPath:
        if (features := confidence_features(path, mel)) is None:
            return _ScoredPath(path, 0.0)
        mean_log10 = self._language.mean_log10(path.words, is_whole=is_whole)
        return _ScoredPath(path, command_confidence(features, mean_log10))

    def _score_free_speech(self, command: BestPath, mel: Mel) -> _ScoredPath:
        """Decodes an utterance as free speech; confidence 0 if it is too long or sounds like noise.

        command: its path as a command.
        """
        features = confidence_features(command, mel)
        too_long = len(mel) * FRAME_MS > 1000 * self._limits.max_free_s
        if (
            self._free_decoder is None
            or too_long
            or not features
            or speech_confidence(features) < MIN_FREE_SPEECH_CONFIDENCE
        ):
            return _ScoredPath(command, 0.0)
        path = self._free_decoder.decode(whole_utterance_cepstra(mel))
        free_features = confidence_features(path, mel)
        return _ScoredPath(path, speech_confidence(free_features) if free_features else 0.0)

    def _search_path(self, item: AsrItem, mel: Mel) -> BestPath:
        decoder = self._search_of(item.utterance)
        if decoder.fed_frames > len(mel):
            decoder.start()  # shorter than before: another utterance with the same id
        decoder.feed(cepstra(mel)[decoder.fed_frames :])
        if item.is_final:
            decoder.stop()
        return decoder.best()

    def _search_of(self, utterance: str) -> SphinxDecoder:
        """Returns the open search of an utterance, or a new one.

        At the limit, the least recently used one of another utterance is taken.
        """
        if (decoder := self._searches.get(utterance)) is not None:
            self._searches.move_to_end(utterance)
            return decoder
        if not self._idle_decoders and len(self._searches) >= self._limits.decoders:
            self.forget(next(iter(self._searches)))
        decoder = (
            self._idle_decoders.pop() if self._idle_decoders else self._decoders.command_decoder()
        )
        decoder.start()
        self._searches[utterance] = decoder
        return decoder


def _result(scored: _ScoredPath) -> AsrResult:
    words = tuple(_word(span, scored.confidence) for span in scored.path.spans)
    return AsrResult(" ".join(scored.path.words), scored.confidence, LANGUAGE, words)


def _word(span: WordSpan, confidence: float) -> Word:
    """Returns a word with the confidence of its utterance: flat search gives none per word."""
    return Word(span.word, span.start * FRAME_MS, span.end * FRAME_MS, confidence)


def _peak(pcm: Pcm) -> int:
    return int(abs(pcm.astype(int)).max()) if len(pcm) else 0
