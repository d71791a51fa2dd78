"""Transcribes whole recordings, for every door that takes audio as a file or an upload."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from core.access.limits import CapacityLimit
from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, samples_to_ms
from core.errors import EngineError, OverloadedError
from core.tasks import single_error
from engines.base import (
    AsrItem,
    AsrOptions,
    AsrPadding,
    AsrResult,
    Segment,
    TokenLogprob,
    Word,
)
from pipeline.transcription.no_speech import (
    NoSpeechCriterion,
    NoSpeechFilter,
    filter_no_speech,
    no_speech_result,
)
from pipeline.transcription.options import check_asr_options
from pipeline.transcription.recogniser import Recogniser, RecordingEngines
from pipeline.transcription.segment import PauseDecoder, SegmentDecode
from pipeline.transcription.segmenter import AudioSegment, Segmenter
from pipeline.transcription.stitching import shift_times, stitch_results
from serving.asr.scheduling import DecodePriority

ANY_LENGTH_MS = 30_000
"""Longest segment for recognisers without a window. It bounds memory, and words come while the
upload is still running."""
BLOCK_MS = 1000
"Audio that is given to the VAD's thread at once."
EAGER_BLOCK_MS = 100
"""Audio that is given to the VAD's thread at once, for eager recordings: it limits how late they
notice a pause."""
MAX_ATTEMPTS = 4
"""Attempts for a segment that is refused while others of its recording have results, whose work
would otherwise be lost."""


SegmentListener: TypeAlias = Callable[[AudioSegment], Awaitable[None]]
"Called with each segment of a recording, in order."

_Outcome: TypeAlias = AsrResult | EngineError | OverloadedError
"Result of a decode, or the error that its reader raises: raised in a task, it would end the group."


@dataclass(frozen=True, slots=True)
class Transcript:
    """Transcript of a whole recording. Times count from its first sample."""

    text: str
    language: str
    language_probability: float
    "Probability that `language` is right, 0 to 1."
    audio_ms: float
    "Length of the recording in ms."
    segments: tuple[Segment, ...]
    words: tuple[Word, ...]
    "Empty without timestamps `word`."
    tokens: tuple[TokenLogprob, ...]
    "Empty without `token_logprobs`."


@dataclass(frozen=True, slots=True)
class _SegmentRequest:
    """A segment whose decode was requested. It keeps no samples: results may wait long until they
    are read."""

    start: int
    "Sample of the recording at which it begins."
    samples: int
    evidence: NoSpeechFilter
    result: AsrResult | asyncio.Task[_Outcome] | None
    "Result of the segment, or the task that decodes it; None: nobody spoke."


class Transcriber:
    """Transcribes recordings of any length. They are cut at pauses, recognised in parallel, and
    stitched in order.

    Example:

        async with transcriber.open("default", AsrOptions()) as recording:
            await recording.push(pcm)
            recording.end()
            transcript = await recording.transcript()
    """

    def __init__(self, engines: RecordingEngines) -> None:
        self._engines = engines
        self._under_way = CapacityLimit()

    async def drain(self) -> None:
        """Refuses new recordings, and waits until those that are open are done."""
        await self._under_way.drain()

    def check(self, model: str, options: AsrOptions) -> None:
        """Checks model and options. Raises NotFound model_not_found; RequestError for what this
        model cannot do; EngineError when the model cannot be used at all."""
        check_asr_options(self._engines.recogniser(model, param="model").info, options)

    def fallback_padding(self, model: str, options: AsrOptions) -> AsrPadding | None:
        """Returns the padding that is used in place of the one asked for; None: that one is used.
        Raises NotFound model_not_found."""
        return self._engines.fallback_padding(model, options.padding)

    def has_word_times(self, model: str) -> bool:
        """Returns whether the model gives the times of words. Raises NotFound model_not_found."""
        return "timestamps" in self._engines.recogniser(model, param="model").info.supports

    def name_of(self, model: str) -> str:
        """Returns the recogniser's own name, for replies. Raises NotFound model_not_found."""
        return self._engines.recogniser_name(model)

    @asynccontextmanager
    async def open(
        self,
        model: str,
        options: AsrOptions,
        *,
        priority: DecodePriority = DecodePriority.BATCH,
        eager: bool = False,
        on_segment: SegmentListener | None = None,
    ) -> AsyncIterator["RecordingTranscription"]:
        """Opens a recording to push audio into. Leaving the context early cancels unfinished
        decodes.

        `eager`: for audio that arrives as it is spoken; see `PauseDecoder`. `on_segment`: gets each
        segment before it is recognised, and holds the recording up while it waits. Raises the
        errors of `check`, and OverloadedError when the wait would be too long or the server is
        draining.
        """
        self._under_way.check_open()
        self.check(model, options)
        self._engines.admit(model, priority)
        recogniser = self._engines.recogniser(model)
        criterion = self._engines.no_speech_criterion(model, options.no_speech_threshold)
        options = self._engines.recognition(options)
        window = ms_to_samples(recogniser.info.window_ms or ANY_LENGTH_MS, ASR_RATE_HZ)
        segmenter = Segmenter(self._engines.vad.open(), window, criterion)
        with single_error(), self._under_way.take(), self._engines.hold(model):
            async with asyncio.TaskGroup() as tasks:
                pause_decoder = PauseDecoder(recogniser, options, tasks, self._engines.on_wasted)
                recording = RecordingTranscription(
                    recogniser,
                    options,
                    priority,
                    segmenter,
                    pause_decoder,
                    tasks,
                    criterion=criterion,
                    is_eager=eager,
                    on_segment=on_segment,
                )
                try:
                    yield recording
                finally:
                    recording.close()


class RecordingTranscription:
    """Transcription of one recording. Call `push`, then `end`, then read `segment_results` or
    `transcript` once. `segment_results` may also be read while audio is pushed."""

    def __init__(
        self,
        recogniser: Recogniser,
        options: AsrOptions,
        priority: DecodePriority,
        segmenter: Segmenter,
        pause_decoder: PauseDecoder,
        tasks: asyncio.TaskGroup,
        *,
        criterion: NoSpeechCriterion,
        is_eager: bool,
        on_segment: SegmentListener | None,
    ) -> None:
        self._recogniser, self._options, self._priority = recogniser, options, priority
        self._segmenter, self._tasks, self._is_eager = segmenter, tasks, is_eager
        self._on_segment = on_segment
        self._block = ms_to_samples(EAGER_BLOCK_MS if is_eager else BLOCK_MS, ASR_RATE_HZ)
        self._waiting: list[Pcm] = []
        self._samples = 0
        self._slots = asyncio.Semaphore(2 * recogniser.info.max_batch)
        "Limits open decodes: one batch runs and the next one waits. More would only use memory."
        self._requests: asyncio.Queue[_SegmentRequest | None] = asyncio.Queue()
        """Segments in order. Without samples, so it need not be bounded, and `push` never waits for
        the reader of `segment_results`."""
        self._running: list[tuple[asyncio.Task[_Outcome], str]] = []
        "Tasks that decode segments, each with the utterance id that the recogniser knows."
        self._pause_decoder = pause_decoder
        self._ending: asyncio.Task[None] | None = None
        self._failure: EngineError | OverloadedError | None = None
        self._has_result = False
        self._criterion = criterion
        self._is_detecting = (
            options.language is None and not options.prefix and len(recogniser.info.languages) > 1
        )
        self._detecting = asyncio.Lock()

    async def push(self, pcm: Pcm) -> None:
        """Adds the next samples, 16 kHz. Waits while too much is still to be recognised.

        Raises EngineError, OverloadedError when the recording has already failed.
        """
        self._raise_if_failed()
        self._samples += len(pcm)
        self._waiting.append(pcm)
        if sum(map(len, self._waiting)) < self._block:
            return
        waiting, self._waiting = np.concatenate(self._waiting), []
        step = max(self._block, ms_to_samples(BLOCK_MS, ASR_RATE_HZ))
        for start in range(0, len(waiting), step):
            for segment in await asyncio.to_thread(
                self._segmenter.push, waiting[start : start + step]
            ):
                await self._recognise(segment)
        if self._is_eager:
            self._pause_decoder.take_audio(self._segmenter)

    def end(self) -> None:
        """Ends the audio."""
        self._ending = self._tasks.create_task(self._finish(), name="recording-end")

    def close(self) -> None:
        """Cancels decodes that are not finished, and frees the state that engines keep for them."""
        if self._ending is not None:
            self._ending.cancel()
        self._pause_decoder.drop()
        for task, utterance in self._running:
            if not task.done():
                task.cancel()
                self._recogniser.forget(utterance)

    async def segment_results(self) -> AsyncIterator[AsrResult]:
        """Yields the result of each segment in order, as soon as it is known. Times count from the
        start of the recording.

        Raises EngineError, OverloadedError.
        """
        while (request := await self._requests.get()) is not None:
            if request.result is None:
                yield no_speech_result(self._options.language or self._recogniser.info.languages[0])
                continue
            result: _Outcome
            result = (
                await request.result if isinstance(request.result, asyncio.Task) else request.result
            )
            if not isinstance(result, AsrResult):
                raise result
            yield shift_times(
                filter_no_speech(result, request.evidence, self._criterion),
                request.start,
                request.samples,
            )

    async def transcript(self) -> Transcript:
        """Returns all results as one transcript. Raises EngineError, OverloadedError."""
        results = [(result, 1.0) async for result in self.segment_results()]
        known = self._options.language or self._recogniser.info.languages[0]
        whole = stitch_results(
            results or [(AsrResult("", 0.0, known, language_probability=0.0), 1.0)]
        )
        return Transcript(
            text=whole.text,
            language=whole.language,
            language_probability=whole.language_probability,
            audio_ms=samples_to_ms(self._samples, ASR_RATE_HZ),
            segments=whole.segments,
            words=whole.words,
            tokens=whole.tokens,
        )

    async def _finish(self) -> None:
        # `segment_results` reads the same error and raises it
        with suppress(EngineError, OverloadedError):
            rest = np.concatenate([np.zeros(0, np.int16), *self._waiting])
            segments = await asyncio.to_thread(self._segmenter.push, rest)
            for segment in [*segments, *await asyncio.to_thread(self._segmenter.end)]:
                await self._recognise(segment)
        self._pause_decoder.drop()
        self._requests.put_nowait(None)

    async def _recognise(self, segment: AudioSegment) -> None:
        self._raise_if_failed()
        if self._on_segment is not None:
            await self._on_segment(segment)
        if self._criterion is NoSpeechCriterion.BOTH and segment.evidence.is_none:
            result = None
        else:
            result = await self._begin(segment)
        request = _SegmentRequest(segment.start, len(segment.pcm), segment.evidence, result)
        self._requests.put_nowait(request)

    async def _begin(self, segment: AudioSegment) -> AsrResult | asyncio.Task[_Outcome]:
        """Returns the result of the decode that a pause began, or a task that decodes the
        segment."""
        is_detecting = self._is_detecting and any(not task.done() for task, _ in self._running)
        early = None if is_detecting else await self._pause_decoder.finished_decode(segment)
        if early is not None and early.result is not None:
            return early.result
        await self._slots.acquire()
        utterance = self._pause_decoder.utterance(segment)
        item = AsrItem(utterance, segment.pcm, True, self._options)
        decode = self._decode(item, segment)
        task = self._tasks.create_task(decode, name=utterance)
        self._running = [entry for entry in self._running if not entry[0].done()] + [
            (task, utterance)
        ]
        return task

    async def _decode(self, item: AsrItem, segment: AudioSegment) -> _Outcome:
        """Decodes a segment, then gives back its slot."""
        try:
            # As with faster-whisper, the first words decide the language of all later segments.
            async with self._detecting:
                if self._is_detecting:
                    result = await self._decode_with_retries(item, segment)
                    if (
                        isinstance(result, AsrResult)
                        and filter_no_speech(result, segment.evidence, self._criterion).text
                    ):
                        self._options = replace(self._options, language=result.language)
                        self._pause_decoder.options = self._options
                        self._is_detecting = False
                    return result
            return await self._decode_with_retries(replace(item, options=self._options), segment)
        finally:
            self._slots.release()

    async def _decode_with_retries(self, item: AsrItem, segment: AudioSegment) -> _Outcome:
        decode = SegmentDecode(self._recogniser, item, segment.start, lead=segment.lead)
        await decode.attempt(self._priority)
        for _ in range(MAX_ATTEMPTS - 1):
            refused = decode.error if decode.result is None else None
            if not isinstance(refused, OverloadedError) or not self._has_result:
                break
            await asyncio.sleep(refused.retry_after_s)
            await decode.attempt(self._priority)
        if decode.result is not None:
            self._has_result = True
            return decode.result
        assert decode.error is not None
        self._failure = decode.error
        return decode.error

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise self._failure
