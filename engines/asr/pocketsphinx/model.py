"""The `AsrModel` of PocketSphinx. It keeps one search open per utterance and scores its result."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from core.audio import Pcm
from engines.asr.pocketsphinx.confidence import command_confidence, evidence, speech_confidence
from engines.asr.pocketsphinx.decoder import BestPath, SphinxDecoder, SphinxDecoderFactory, WordSpan
from engines.asr.pocketsphinx.features import (
    FRAME_MS,
    LOOKAHEAD_FRAMES,
    Mel,
    cepstra,
    cepstra_of_whole,
    mel_power,
)
from engines.asr.pocketsphinx.language_model import TrigramModel
from engines.base import AsrInfo, AsrItem, AsrResult, Word

LANGUAGE = "en"
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

LIKE_SPEECH = 0.2
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
    decoded: BestPath
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
        self._open: OrderedDict[str, SphinxDecoder] = OrderedDict()
        self._idle = [decoders.commands()]
        self._free = decoders.anything() if limits.max_free_s else None

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Returns one result per item (see `AsrModel.decode`)."""
        return [self._decode(item) for item in items]

    def forget(self, utterance: str) -> None:
        """Closes the search of an utterance, if it is open."""
        decoder = self._open.pop(utterance, None)
        if decoder is not None:
            decoder.stop()
            self._idle.append(decoder)

    def close(self) -> None:
        """Closes all searches and removes the files."""
        for utterance in list(self._open):
            self.forget(utterance)
        self._idle.clear()
        self._free = None
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
        guess = self._command(self._search(item, mel), mel, is_whole=False)
        if guess.confidence < self._limits.min_partial_confidence:
            return AsrResult("", guess.confidence, LANGUAGE)
        return _result(guess)

    def _final(self, item: AsrItem, mel: Mel) -> AsrResult:
        limits = self._limits
        try:
            guess = self._command(self._search(item, mel), mel, is_whole=True)
            if guess.confidence < limits.second_look:
                again = self._decoder(item.utterance).decode(cepstra_of_whole(mel))
                other = self._command(again, mel, is_whole=True)
                guess = max(guess, other, key=lambda each: each.confidence)
        finally:
            self.forget(item.utterance)
        if guess.confidence >= limits.min_confidence:
            return _result(guess)
        free = self._anything(guess.decoded, mel)
        if free.confidence >= limits.min_speech_confidence:
            return _result(free)
        if item.options.no_speech_threshold == 1:  # the caller wants even unsure text
            return _result(guess)
        return AsrResult("", guess.confidence, LANGUAGE, is_rejected=bool(guess.decoded.spans))

    def _command(self, decoded: BestPath, mel: Mel, *, is_whole: bool) -> _ScoredPath:
        if (seen := evidence(decoded, mel)) is None:
            return _ScoredPath(decoded, 0.0)
        likely = self._language.mean_log10(decoded.words, is_whole=is_whole)
        return _ScoredPath(decoded, command_confidence(seen, likely))

    def _anything(self, command: BestPath, mel: Mel) -> _ScoredPath:
        """Decodes an utterance as free speech; confidence 0 if it is too long or sounds like noise.

        command: its path as a command.
        """
        seen = evidence(command, mel)
        too_long = len(mel) * FRAME_MS > 1000 * self._limits.max_free_s
        if self._free is None or too_long or not seen or speech_confidence(seen) < LIKE_SPEECH:
            return _ScoredPath(command, 0.0)
        decoded = self._free.decode(cepstra_of_whole(mel))
        heard = evidence(decoded, mel)
        return _ScoredPath(decoded, speech_confidence(heard) if heard else 0.0)

    def _search(self, item: AsrItem, mel: Mel) -> BestPath:
        decoder = self._decoder(item.utterance)
        if decoder.fed > len(mel):
            decoder.start()  # shorter than before: another utterance with the same id
        decoder.feed(cepstra(mel)[decoder.fed :])
        if item.is_final:
            decoder.stop()
        return decoder.best()

    def _decoder(self, utterance: str) -> SphinxDecoder:
        """Returns the open search of an utterance, or a new one.

        At the limit, the least recently used one of another utterance is taken.
        """
        if (decoder := self._open.get(utterance)) is not None:
            self._open.move_to_end(utterance)
            return decoder
        if not self._idle and len(self._open) >= self._limits.decoders:
            self.forget(next(iter(self._open)))
        decoder = self._idle.pop() if self._idle else self._decoders.commands()
        decoder.start()
        self._open[utterance] = decoder
        return decoder


def _result(guess: _ScoredPath) -> AsrResult:
    words = tuple(_word(span, guess.confidence) for span in guess.decoded.spans)
    return AsrResult(" ".join(guess.decoded.words), guess.confidence, LANGUAGE, words)


def _word(span: WordSpan, sure: float) -> Word:
    """Returns a word with the confidence of its utterance: flat search gives none per word."""
    return Word(span.word, span.start * FRAME_MS, span.end * FRAME_MS, sure)


def _peak(pcm: Pcm) -> int:
    return int(abs(pcm.astype(int)).max()) if len(pcm) else 0
