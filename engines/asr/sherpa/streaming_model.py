"""Streaming models of sherpa-onnx. The library keeps the state of each utterance between two calls,
and computes one step of many utterances at once."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, samples_to_ms
from engines.asr.sherpa.hotwords import phrases
from engines.asr.sherpa.model_folder import SherpaModel
from engines.asr.sherpa.words import DecodedTokens, to_result
from engines.base import AsrInfo, AsrItem, AsrOptions, AsrResult

TAIL_SPARE_MS = 100
"""Silence beyond a window that follows the audio of a final result. Without the tail the last word
is missing, as the library decodes no incomplete step."""

SAMPLE_SCALE = np.float32(1 / 32768)
"Factor from an int16 sample to one of -1 to 1, as the library wants it."


@dataclass(slots=True)
class StreamedUtterance:
    """An utterance that the library has begun to decode."""

    stream: Any
    options: AsrOptions
    fed: int = 0
    "Number of its samples that the library has."


class StreamingSherpa:
    """An `AsrModel` that decodes utterances while they grow, many in one step."""

    def __init__(
        self,
        recognizer: Any,
        model: SherpaModel,
        info: AsrInfo,
        prompts: Mapping[str, str],
        max_open: int,
    ) -> None:
        """`recognizer`: the library's. `prompts`: the library's name of each language, for models
        that are told the language. `max_open`: utterances whose state is kept."""
        assert info.steps is not None
        self.info = info
        self._recognizer, self._model, self._prompts = recognizer, model, prompts
        self._max_open = max_open
        tail_ms = info.steps.first_ms + TAIL_SPARE_MS
        self._tail = [0.0] * ms_to_samples(tail_ms, ASR_RATE_HZ)
        self._open: OrderedDict[str, StreamedUtterance] = OrderedDict()
        "The one that was fed last comes last."

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """Feeds each utterance what is new, and returns one result per item (see
        `AsrModel.decode`)."""
        utterances = [self._feed(item) for item in items]
        streams = list({id(utterance): utterance.stream for utterance in utterances}.values())
        # The library ends the process if it is given a stream that is not ready.
        while ready := [stream for stream in streams if self._recognizer.is_ready(stream)]:
            self._recognizer.decode_streams(ready)
        return [
            self._result(item, utterance) for item, utterance in zip(items, utterances, strict=True)
        ]

    def forget(self, utterance: str) -> None:
        """Drops the state of an utterance."""
        self._open.pop(utterance, None)

    def close(self) -> None:
        """Drops the state of all utterances, and the model."""
        self._open.clear()
        self._recognizer = None

    def _feed(self, item: AsrItem) -> StreamedUtterance:
        utterance = self._open.pop(item.utterance, None)
        if (
            utterance is None
            or utterance.options != _stream_options(item.options)
            or len(item.pcm) < utterance.fed
        ):
            utterance = self._start(item.options)
        new = item.pcm[utterance.fed :]
        if len(new):
            utterance.stream.accept_waveform(ASR_RATE_HZ, _floats(new))
            utterance.fed = len(item.pcm)
        if item.is_final:
            utterance.stream.accept_waveform(ASR_RATE_HZ, self._tail)
            utterance.stream.input_finished()
            return utterance
        self._open[item.utterance] = utterance
        if len(self._open) > self._max_open:
            self._open.popitem(last=False)  # its next item holds all its audio, so it starts again
        return utterance

    def _start(self, options: AsrOptions) -> StreamedUtterance:
        hotwords = ""
        if "hotwords" in self.info.supports:
            hotwords = phrases(options.hotwords, is_upper_case=self._model.is_upper_case)
        create = self._recognizer.create_stream
        stream = create(hotwords=hotwords) if hotwords else create()
        if prompt := self._prompts.get(options.language or ""):
            stream.set_option("language", prompt)
        return StreamedUtterance(stream, _stream_options(options))

    def _result(self, item: AsrItem, utterance: StreamedUtterance) -> AsrResult:
        found = self._recognizer.get_result_all(utterance.stream)
        decoded = DecodedTokens(
            found.text, found.tokens, found.timestamps, getattr(found, "ys_probs", ())
        )
        return to_result(
            decoded,
            item.options.language or self.info.languages[0],
            samples_to_ms(len(item.pcm), ASR_RATE_HZ),
            is_upper_case=self._model.is_upper_case,
            has_words=item.options.timestamps == "word",
        )


def _stream_options(options: AsrOptions) -> AsrOptions:
    """Returns the options that are fixed when an utterance is begun."""
    return AsrOptions(language=options.language, hotwords=options.hotwords)


def _floats(pcm: Pcm) -> list[float]:
    """Returns samples as the library reads them fastest: an array takes it twice the time."""
    floats: list[float] = (pcm * SAMPLE_SCALE).tolist()
    return floats
