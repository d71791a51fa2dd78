"""Transcribes live utterances with a batched recogniser, for every door."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, samples_to_ms
from core.errors import EarshotError, EngineError, OverloadedError
from core.ports import Clock
from engines.base import AsrItem, AsrOptions, AsrResult
from pipeline.transcription.audio_buffer import AudioBuffer
from pipeline.transcription.former_speech import (
    FormerSpeech,
    FormerSpeechSource,
    former_room,
    no_former_speech,
    takes_former_speech,
)
from pipeline.transcription.partials import PartialHypothesis, PartialPacing, StablePrefix
from pipeline.transcription.recogniser import OnWastedWork, Recogniser, ignore_waste
from pipeline.transcription.segment import SegmentDecode
from pipeline.transcription.segmenter import (
    LONG_PAUSE_MS,
    PAD_MS,
    QUIET_MS,
    missing_lead,
    quietest,
)
from pipeline.transcription.stitching import join_texts, shift_times, stitch_results
from serving.asr.scheduling import DecodePriority

FIRST_PARTIAL_MS = 700
"""Audio before the first partial where it is not known when the speech begins: some silence and a
word or two. On less, recognisers guess, and two equal guesses look stable."""
FIRST_SPEECH_MS = 280
"""Speech before the first partial. Of 25 people's orders, tiny.en finds words in 20 to 23 after 240
to 320 ms, and the first word is right in 18 to 23; no more are found after 440 ms."""

MAX_OPEN_MS = 60_000
"""Longest open segment for recognisers without a window. Decoding more of it again and again would
starve other sessions."""

OnHypothesis = Callable[[PartialHypothesis, int], None]
"Takes the words so far, and the ms of audio that they cover."

OnProvisionalResult = Callable[[AsrResult], None]
"Takes the final result as it would be if the utterance is over."

_PAD = ms_to_samples(PAD_MS, ASR_RATE_HZ)
_FIRST_AUDIO = ms_to_samples(FIRST_PARTIAL_MS, ASR_RATE_HZ)
_FIRST_SPEECH = ms_to_samples(FIRST_SPEECH_MS, ASR_RATE_HZ)


def ends_segment(pause_ms: float, segment_ms: float, window_ms: float) -> bool:
    """Returns whether a pause ends the segment before it, whose words then do not change any more.
    `segment_ms`: length of that segment. `window_ms`: the recogniser's window."""
    return pause_ms >= LONG_PAUSE_MS or (pause_ms >= QUIET_MS and segment_ms >= window_ms / 2)


class TranscriptStream:
    """Transcription of one utterance: takes audio, reports partials while it is spoken, and returns
    one final result.

    Audio that exceeds the recogniser's window is cut at pauses into segments, each decoded once.
    Only the open segment, the one after them, is decoded again for each partial. Tasks belong to
    the caller's group.

        stream = TranscriptStream(recogniser, new_id("item"), options, clock, tasks)
        stream.push(pcm)  # as often as samples arrive
        result = await stream.finish()
    """

    def __init__(
        self,
        recogniser: Recogniser,
        utterance_id: str,
        options: AsrOptions,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        on_wasted: OnWastedWork = ignore_waste,
        *,
        before_speech: int | None = None,
    ) -> None:
        """`on_wasted`: called with the seconds of each final decode that was begun but then not
        needed, because the utterance continued. `before_speech`: samples of the audio before its
        speech: the recogniser gets silence in place of what is missing. None: enough."""
        self.id, self._on_wasted = utterance_id, on_wasted
        self._lead = 0 if before_speech is None else missing_lead(before_speech)
        "Silence before the first segment, in samples."
        speech_start = _FIRST_AUDIO if before_speech is None else before_speech
        self._first_partial = min(_FIRST_AUDIO, speech_start + _FIRST_SPEECH)
        "Samples of audio before the first partial."
        self._recogniser, self._options = recogniser, options
        steps = recogniser.info.steps
        self.former_speech: FormerSpeechSource = no_former_speech
        """Gives the speech with which the first segment is decoded, if the recogniser can continue
        from its words. Called for each decode."""
        self._clock, self._tasks = clock, tasks
        window_ms = recogniser.info.window_ms
        self._window_ms = window_ms if window_ms is not None else float("inf")
        self.audio = AudioBuffer()
        "All audio of the utterance."
        self._start = 0
        "Sample at which the open segment begins."
        self._closed: list[SegmentDecode] = []
        self._prepared: SegmentDecode | None = None
        "Final decode of the open segment up to a pause; dropped when speech resumes."
        self._speech_end = 0
        "Sample of the utterance one past its speech, at the last pause."
        self._last_pause = 0
        "Sample in the middle of the last pause after which speech resumed."
        self._is_silent = False
        "True if nothing was said since the last segment ended."
        self._newest: SegmentDecode | None = None
        "The open segment up to the newest partial."
        self._requested_end = 0
        "Sample up to which a hypothesis was requested last."
        self._has_grown = asyncio.Event()
        self._partials_task: asyncio.Task[None] | None = None
        self._prefix = StablePrefix()
        self._pacing = PartialPacing(steps.every_ms / 1000) if steps else PartialPacing()
        self._on_provisional: OnProvisionalResult | None = None
        "Receives the result while a pause lasts and its words are not known yet."

    @property
    def audio_ms(self) -> float:
        """Length of the utterance so far, in ms."""
        return self.audio.duration_ms

    def open_pcm(self) -> Pcm:
        """Returns the audio whose words may still change."""
        return self.audio.pcm(self._start)

    def push(self, pcm: Pcm) -> None:
        """Adds the next samples, 16 kHz."""
        self.audio.push(pcm)
        self._close_segments()
        if self._wants_partial():
            self._has_grown.set()

    def follow(
        self,
        on_hypothesis: OnHypothesis,
        on_error: Callable[[EarshotError], None],
        on_nothing: Callable[[], None] = lambda: None,
    ) -> None:
        """Reports partials until the utterance ends: to `on_hypothesis`, or to `on_nothing` when
        the recogniser found no words. Errors go to `on_error`; they do not end the utterance."""
        partials = self._follow(on_hypothesis, on_error, on_nothing)
        self._partials_task = self._tasks.create_task(partials)

    def prepare(self, speech_end: int, on_provisional: OnProvisionalResult | None = None) -> None:
        """Begins the final decode at a pause, as the utterance may be over, so that the work is
        hidden in the silence. `speech_end`: sample of the utterance one past its last speech. If
        the newest partial covers all of the speech, it is that decode.

        An incremental engine needs no early decode, and would lose its state by it. Its next
        partial that covers all of the speech goes to `on_provisional`.
        """
        self._speech_end = speech_end
        self._on_provisional = on_provisional
        if self._recogniser.info.is_incremental or self._is_silent or not self._is_bounded:
            return
        newest, item = self._newest, self._item(is_final=True)
        if newest and newest.can_be_final(speech_end, item.options):
            self._prepared = newest
            self._recogniser.forget(newest.utterance)
        else:
            self._prepared = self._decode(item)
            self._prepared.begin(self._tasks, DecodePriority.SPECULATIVE)
        if on_provisional is not None:
            self._tasks.create_task(self._await_provisional(self._prepared))

    async def _await_provisional(self, segment: SegmentDecode) -> None:
        await segment.wait()
        if segment is self._prepared and segment.result is not None:
            self._report_provisional(segment)

    def _report_provisional(self, last: SegmentDecode) -> None:
        """Reports the result once per pause, and only for an utterance of a single segment."""
        on_provisional, self._on_provisional = self._on_provisional, None
        if on_provisional is not None and last.result is not None and not self._closed:
            on_provisional(last.result)

    def resume(self) -> None:
        """Speech resumes after a pause: drops the early decode."""
        self._is_silent = False
        self._on_provisional = None
        self._last_pause = (self._speech_end + self.audio.end) // 2
        if self._prepared is not None:
            self._prepared.drop(self._on_wasted)
            self._prepared = None

    def end(self) -> None:
        """Stops the partials."""
        self._on_provisional = None
        if self._partials_task is not None:
            self._partials_task.cancel()

    async def finish(self) -> AsrResult:
        """Returns the final result. Raises EngineError, OverloadedError."""
        self.end()
        if self._prepared is None and not self._is_silent:
            self._prepared = self._decode(self._item(is_final=True))
        segments = [*self._closed, *([self._prepared] if self._prepared else [])]
        for segment in segments:
            segment.begin(self._tasks, DecodePriority.FINAL)
        results = [await segment.final(self._tasks) for segment in segments]
        if len(segments) == 1:
            return results[0]
        return stitch_results(
            [
                (shift_times(result, segment.start, segment.samples), segment.duration_ms)
                for result, segment in zip(results, segments, strict=True)
            ]
        )

    def discard(self) -> None:
        """Drops the utterance, and frees what the recogniser keeps for it."""
        self.resume()
        self.end()
        for segment in self._closed:
            segment.cancel()
            if segment.result is None:
                self._recogniser.forget(segment.utterance)
        self._recogniser.forget(self._open_id)

    @property
    def _open_id(self) -> str:
        """Utterance id of the open segment. Engines keep state by id, so each segment has its
        own."""
        return f"{self.id}.{len(self._closed)}" if self._closed else self.id

    def _wants_partial(self) -> bool:
        if self._is_silent:
            return False
        if self._recogniser.info.steps is not None:
            # A streaming model does not guess, and its words change when a step is complete.
            decoded = self._decoded(self.audio.end)
            return decoded > self._decoded(self._requested_end) and self._is_bounded
        if self.audio.end < self._first_partial:
            return False
        if self._prepared is not None:
            return self._prepared.end > self._requested_end
        grown = self.audio.end - self._requested_end
        return grown >= round(self._pacing.every_s * ASR_RATE_HZ) and self._is_bounded

    def _decoded(self, end: int) -> int:
        """Returns the sample up to which the recogniser decodes the open segment, of a partial that
        ends at sample `end`."""
        steps = self._recogniser.info.steps
        if steps is None:
            return end
        before = self._start or -self._lead
        audio_ms = samples_to_ms(end - before, ASR_RATE_HZ)
        return before + ms_to_samples(steps.decoded_ms(audio_ms), ASR_RATE_HZ)

    def _has_all_words(self, segment: SegmentDecode) -> bool:
        """Returns whether a partial of an incremental recogniser has all words up to the pause."""
        lag = ms_to_samples(self._recogniser.info.lag_ms, ASR_RATE_HZ)
        return self._decoded(segment.end) - lag >= self._speech_end > 0

    @property
    def _is_bounded(self) -> bool:
        return self._open_ms <= min(MAX_OPEN_MS, self._window_ms)

    @property
    def _open_ms(self) -> float:
        """Length of the open segment, in ms."""
        return samples_to_ms(self.audio.end - self._start, ASR_RATE_HZ)

    def _close_segments(self) -> None:
        """Closes the open segment if it, or the pause after it, is long enough. No segment may
        exceed the window."""
        if self._is_silent:
            # silence between segments is left out, but for a short pre-roll of the next one
            self._start = max(self._start, self.audio.end - _PAD)
            return
        prepared = self._prepared
        if prepared is not None:
            pause_ms = samples_to_ms(self.audio.end - self._speech_end, ASR_RATE_HZ)
            is_full = self._open_ms > self._window_ms
            if self._window_ms < float("inf") and (
                is_full or ends_segment(pause_ms, prepared.duration_ms, self._window_ms)
            ):
                self._prepared = None
                self._close(prepared)
                self._is_silent = True
            return
        # Speech without a pause for a whole window: cut at the last pause in its last third, else
        # where it is quietest.
        while self._open_ms > self._window_ms:
            pcm = self.open_pcm()
            window = ms_to_samples(self._window_ms, ASR_RATE_HZ)
            search, cut = window - window // 3, self._last_pause - self._start
            if not search <= cut <= window:
                cut = search + quietest(pcm[search:window])
            item = AsrItem(self._open_id, pcm[:cut], True, self._final_options())
            segment = self._decode(item)
            segment.begin(self._tasks, DecodePriority.SPECULATIVE)
            self._close(segment)

    def _close(self, segment: SegmentDecode) -> None:
        self._closed.append(segment)
        self._newest = None
        self._start = max(self._start, segment.end)

    async def _follow(
        self,
        on_hypothesis: OnHypothesis,
        on_error: Callable[[EarshotError], None],
        on_nothing: Callable[[], None],
    ) -> None:
        """Requests one partial after another and reports it. Runs until it is cancelled."""
        pacing = self._pacing
        while True:
            await self._has_grown.wait()
            await asyncio.sleep(pacing.wait_s(self._clock.now()))
            self._has_grown.clear()
            if not self._wants_partial():
                continue
            pacing.requested(self._clock.now())
            try:
                segment = await self._hypothesis()
                returned = self._clock.now()
                words = await self._words_up_to(segment)
            except OverloadedError:
                pacing.refused()  # partials are the first work that is dropped under load
                continue
            except EngineError as exc:
                pacing.refused()
                on_error(exc)
                continue
            pacing.returned(returned, has_words=bool(words))
            if words:
                audio_ms = round(samples_to_ms(segment.end, ASR_RATE_HZ))
                on_hypothesis(self._prefix.push(words), audio_ms)
            else:
                on_nothing()
            if self._recogniser.info.is_incremental and self._has_all_words(segment):
                self._report_provisional(segment)

    async def _hypothesis(self) -> SegmentDecode:
        """Returns a partial decode of the open segment; in a pause, the final decode that has
        begun."""
        prepared = self._prepared
        if prepared is not None:
            self._requested_end = prepared.end
            await prepared.wait()
            if prepared.error is not None and prepared.result is None:
                raise prepared.error
            return prepared
        segment = self._decode(self._item(is_final=False))
        self._requested_end = segment.end
        await segment.attempt(DecodePriority.PARTIAL)
        if segment.error is not None:
            raise segment.error
        if segment.start == self._start:
            self._newest = segment
        return segment

    async def _words_up_to(self, last: SegmentDecode) -> str:
        """Returns all words up to the end of `last`, or "" if some are not known. Raises
        EngineError, OverloadedError when a segment before it failed."""
        segments = [segment for segment in self._closed if segment.start < last.start]
        for segment in segments:
            segment.begin(self._tasks, DecodePriority.SPECULATIVE)
            await segment.wait()
            if segment.result is None and segment.error is not None:
                raise segment.error
        results = [segment.result for segment in (*segments, last)]
        if last.result is None or not last.result.text:
            return ""
        texts = [result.text for result in results if result is not None]
        return join_texts(texts) if len(texts) == len(results) else ""

    def _decode(self, item: AsrItem) -> SegmentDecode:
        """Returns a decode of the open segment that has not begun."""
        if self._start:
            return SegmentDecode(self._recogniser, item, self._start)
        former = self._former(item)
        return SegmentDecode(self._recogniser, item, 0, lead=self._lead, former=former)

    def _former(self, item: AsrItem) -> FormerSpeech | None:
        """Returns the speech to decode with the item, which begins the utterance."""
        if not takes_former_speech(self._recogniser.info, item.options):
            return None
        return self.former_speech(former_room(len(item.pcm)))

    def _item(self, *, is_final: bool) -> AsrItem:
        options = self._final_options()
        if not is_final:
            options = _cheaper(options)
        return AsrItem(self._open_id, self.open_pcm(), is_final, options)

    def _final_options(self) -> AsrOptions:
        """Returns the options of final decodes: the first words decide the language of all later
        segments, as in `recording`."""
        known = [
            segment.result for segment in self._closed if segment.result and segment.result.text
        ]
        if known and self._options.language is None:
            return replace(self._options, language=known[0].language)
        return self._options


def _cheaper(options: AsrOptions) -> AsrOptions:
    """Returns options for partials, whose words will change anyway: no beam search, one
    temperature, no details."""
    return replace(
        options,
        beam_size=None if options.beam_size is None else 1,
        temperatures=options.temperatures[:1],
        timestamps="none",
        token_logprobs=False,
    )
