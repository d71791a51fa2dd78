"""Models of sherpa-onnx that recognise whole utterances."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, samples_to_ms
from engines.asr.sherpa.hotwords import phrases
from engines.asr.sherpa.model_folder import SherpaModel
from engines.asr.sherpa.streaming_model import SAMPLE_SCALE
from engines.asr.sherpa.words import DecodedTokens, to_result
from engines.base import AsrInfo, AsrItem, AsrOptions, AsrResult

MIN_AUDIO_MS = 100
"Shortest audio that is decoded: less has no word, and too few frames for some models."


class OfflineSherpa:
    """An `AsrModel` that decodes whole utterances, many at once where the model can."""

    def __init__(self, recognizer: Any, model: SherpaModel, info: AsrInfo) -> None:
        """`recognizer`: the library's."""
        self.info = info
        self._recognizer, self._model = recognizer, model

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Returns one result per item (see `AsrModel.decode`)."""
        streams = [self._stream(item.pcm, item.options) for item in items]
        if waiting := [stream for stream in streams if stream is not None]:
            self._recognizer.decode_streams(waiting)
        return [self._result(item, stream) for item, stream in zip(items, streams, strict=True)]

    def forget(self, utterance: str) -> None:
        """Does nothing: no state is kept between two calls."""

    def close(self) -> None:
        """Drops the model."""
        self._recognizer = None

    def _stream(self, pcm: Pcm, options: AsrOptions) -> Any | None:
        """Returns the audio as the library takes it; None if it is too short for a word."""
        if len(pcm) < ms_to_samples(MIN_AUDIO_MS, ASR_RATE_HZ):
            return None
        hotwords = ""
        if "hotwords" in self.info.supports:
            hotwords = phrases(options.hotwords, is_upper_case=self._model.is_upper_case)
        create = self._recognizer.create_stream
        stream = create(hotwords=hotwords) if hotwords else create()
        stream.accept_waveform(ASR_RATE_HZ, (pcm * SAMPLE_SCALE).astype(np.float32))
        return stream

    def _result(self, item: AsrItem, stream: Any | None) -> AsrResult:
        if stream is None:
            return AsrResult("", 0.0, self.info.languages[0])
        found = stream.result
        decoded = DecodedTokens(
            found.text,
            found.tokens,
            found.timestamps if self._model.family.has_times else (),
            found.ys_log_probs,
            found.durations,
        )
        return to_result(
            decoded,
            self._language(found.lang, item.options),
            samples_to_ms(len(item.pcm), ASR_RATE_HZ),
            is_upper_case=self._model.is_upper_case,
            has_words=item.options.timestamps == "word",
        )

    def _language(self, found: str, options: AsrOptions) -> str:
        """Returns the language of a result. `found`: what the model says, such as `<|zh|>`."""
        code = found.strip("<|>")
        return code if code in self.info.languages else options.language or self.info.languages[0]
