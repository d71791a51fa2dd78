"""The `AsrModel`: keeps a search open per utterance and scores what it found."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from core.audio import Pcm
from engines.asr.pocketsphinx.decoder import Decoded, Decoder, Decoders, Span
from engines.asr.pocketsphinx.features import (
    FRAME_MS,
    LOOKAHEAD_FRAMES,
    Mel,
    cepstra,
    mel_power,
)
from engines.asr.pocketsphinx.lm import Trigrams
from engines.asr.pocketsphinx.scoring import confidence
from engines.base import AsrInfo, AsrItem, AsrResult, Word

LANGUAGE = "en"
SILENCE_PEAK = 32
"-60 dBFS: below any microphone's own noise. Raising it to full scale would invent words."


@dataclass(frozen=True, slots=True)
class Limits:
    """What is let through, and how much is kept. See `Settings` for each."""

    min_confidence: float
    min_partial_confidence: float
    decoders: int


class PocketSphinx:
    """Decodes an utterance while it grows. English only; what it hears else, it rejects."""

    def __init__(self, language: Trigrams, decoders: Decoders, limits: Limits) -> None:
        self.info = AsrInfo(
            name="pocketsphinx",
            model="en-us",
            languages=(LANGUAGE,),
            max_batch=1,  # items are decoded one after another: a batch only makes the first wait
            is_incremental=True,
        )
        self._language, self._decoders, self._limits = language, decoders, limits
        self._open: OrderedDict[str, Decoder] = OrderedDict()
        self._idle = [decoders.make()]

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """See `AsrModel.decode`."""
        return [self._decode(item) for item in items]

    def forget(self, utterance: str) -> None:
        decoder = self._open.pop(utterance, None)
        if decoder is not None:
            decoder.stop()
            self._idle.append(decoder)

    def close(self) -> None:
        for utterance in list(self._open):
            self.forget(utterance)
        self._idle.clear()
        self._decoders.close()

    def _decode(self, item: AsrItem) -> AsrResult:
        if _peak(item.pcm) < SILENCE_PEAK:
            if item.is_final:
                self.forget(item.utterance)
            return AsrResult("", 0.0, LANGUAGE)
        mel = mel_power(item.pcm)
        if len(mel) < LOOKAHEAD_FRAMES and not item.is_final:
            return AsrResult("", 0.0, LANGUAGE)
        try:
            decoded = self._search(item, mel)
        finally:
            if item.is_final:
                self.forget(item.utterance)
        return self._judge(decoded, mel, is_final=item.is_final)

    def _search(self, item: AsrItem, mel: Mel) -> Decoded:
        decoder = self._decoder(item.utterance)
        if decoder.fed > len(mel):
            decoder.start()  # shorter than before: another utterance under the same name
        decoder.feed(cepstra(mel)[decoder.fed :])
        if item.is_final:
            decoder.stop()
        return decoder.best()

    def _decoder(self, utterance: str) -> Decoder:
        """The search open for it, or a fresh one; the longest unused one gives way."""
        if (decoder := self._open.get(utterance)) is not None:
            self._open.move_to_end(utterance)
            return decoder
        if not self._idle and len(self._open) >= self._limits.decoders:
            self.forget(next(iter(self._open)))
        decoder = self._idle.pop() if self._idle else self._decoders.make()
        decoder.start()
        self._open[utterance] = decoder
        return decoder

    def _judge(self, decoded: Decoded, mel: Mel, *, is_final: bool) -> AsrResult:
        sure = confidence(decoded, mel, self._language, is_final=is_final)
        limits = self._limits
        enough = limits.min_confidence if is_final else limits.min_partial_confidence
        if not decoded.spans or sure < enough:
            return AsrResult("", sure, LANGUAGE, is_rejected=is_final and bool(decoded.spans))
        words = tuple(_word(span, sure) for span in decoded.spans)
        return AsrResult(" ".join(decoded.words), sure, LANGUAGE, words)


def _word(span: Span, sure: float) -> Word:
    """Flat search leaves no word posteriors: a word is as sure as its utterance."""
    return Word(span.word, span.start * FRAME_MS, span.end * FRAME_MS, sure)


def _peak(pcm: Pcm) -> int:
    return int(abs(pcm.astype(int)).max()) if len(pcm) else 0
