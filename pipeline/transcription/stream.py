"""Utterances as streams of hypotheses over a batched recogniser: written once, for every door."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, samples_to_ms
from core.errors import EarshotError, EngineError, OverloadedError
from core.ports import Clock
from engines.base import AsrItem, AsrOptions, AsrResult
from pipeline.transcription.audio_buffer import AudioBuffer
from pipeline.transcription.partials import EVERY_S, PartialHypothesis, PartialPacing, StablePrefix
from pipeline.transcription.recogniser import OnWastedWork, Recogniser, ignore_waste
from pipeline.transcription.segment import SegmentDecode
from pipeline.transcription.segmenter import LONG_PAUSE_MS, PAD_MS, QUIET_MS, quietest
from pipeline.transcription.stitching import join_texts, shift_times, stitch_results
from serving.scheduling.scheduler import DecodePriority

FIRST_PARTIAL_MS = 700
"Padding and a word or two: on less, recognisers guess, and two equal guesses look stable."

MAX_OPEN_MS = 60_000
"Without a window: decoding all of it again and again, ahead of its end, would starve others."

OnHypothesis = Callable[[PartialHypothesis, int], None]
"Words so far, and how many ms of audio they cover."

OnGuess = Callable[[AsrResult], None]
"The final result, should the utterance be over."

_PAD = ms_to_samples(PAD_MS, ASR_RATE_HZ)
_EVERY = round(EVERY_S * ASR_RATE_HZ)


def ends_part(pause_ms: float, part_ms: float, window_ms: float) -> bool:
    """Whether what was said before a pause is over, so that its words can be fixed."""
    return pause_ms >= LONG_PAUSE_MS or (pause_ms >= QUIET_MS and part_ms >= window_ms / 2)


class TranscriptStream:
    """One utterance: audio in, hypotheses while it is spoken, one final result.

    What exceeds the recogniser's window is cut at pauses into parts, each decoded once; only the
    open part behind them is decoded again and again. Tasks belong to the caller's group.
    """

    def __init__(
        self,
        recogniser: Recogniser,
        utterance_id: str,
        options: AsrOptions,
        clock: Clock,
        tasks: asyncio.TaskGroup,
        on_wasted: OnWastedWork = ignore_waste,
    ) -> None:
        """`on_wasted`: told of each decode of an utterance that was not over after all."""
        self.id, self._on_wasted = utterance_id, on_wasted
        self._recogniser, self._options = recogniser, options
        self._clock, self._tasks = clock, tasks
        window_ms = recogniser.info.window_ms
        self._window_ms = window_ms if window_ms is not None else float("inf")
        self._audio = AudioBuffer()
        "Of the open part."
        self._parts: list[SegmentDecode] = []
        self._prepared: SegmentDecode | None = None
        "The open part up to a pause; void when speech resumes."
        self._speech_end = 0
        "Where the pause began."
        self._last_pause = 0
        "The middle of the last one that was over."
        self._is_silent = False
        "Nothing was said since the last part ended."
        self._newest: SegmentDecode | None = None
        "The open part up to the newest partial."
        self._told = 0
        "Where the newest hypothesis ends."
        self._grew = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._prefix = StablePrefix()
        self._on_guess: OnGuess | None = None
        "While a pause lasts whose words are not known yet."

    @property
    def audio_ms(self) -> float:
        return samples_to_ms(self._audio.end, ASR_RATE_HZ)

    def open_pcm(self) -> Pcm:
        """The audio whose words may still change."""
        return self._audio.pcm()

    def push(self, pcm: Pcm) -> None:
        """The next samples, 16 kHz."""
        self._audio.push(pcm)
        self._close_parts()
        if self._wants_partial():
            self._grew.set()

    def follow(
        self,
        on_hypothesis: OnHypothesis,
        on_error: Callable[[EarshotError], None],
        on_nothing: Callable[[], None] = lambda: None,
    ) -> None:
        """Report hypotheses until the utterance ends, and when the recogniser listened and found no
        words. Errors end the reports, not the utterance."""
        following = self._follow(on_hypothesis, on_error, on_nothing)
        self._following = self._tasks.create_task(following)

    def prepare(self, speech_end: int, on_guess: OnGuess | None = None) -> None:
        """It may be over, with its last speech before this sample: decode it, so that the time
        hides in the silence. If the newest partial heard all of the speech, it is that decode.

        An incremental engine needs no head start, and would lose its state: its next partial that
        heard all of the speech is the guess.
        """
        self._speech_end = speech_end
        self._on_guess = on_guess
        if self._recogniser.info.is_incremental or self._is_silent or not self._is_bounded:
            return
        self._begin_prepared(speech_end)
        if on_guess is not None and self._prepared is not None:
            self._tasks.create_task(self._guess(self._prepared))

    def _begin_prepared(self, speech_end: int) -> None:
        newest, item = self._newest, self._item(is_final=True)
        if newest and newest.end >= speech_end and newest.item.options == item.options:
            self._prepared = newest
            self._recogniser.forget(newest.item.utterance)
            return
        self._prepared = SegmentDecode(self._recogniser, item, self._audio.start)
        self._prepared.begin(self._tasks, DecodePriority.SPECULATIVE)

    async def _guess(self, part: SegmentDecode) -> None:
        await part.tried()
        if part is self._prepared and part.result is not None:
            self._tell_guess(part)

    def _tell_guess(self, last: SegmentDecode) -> None:
        """Once per pause, and only of an utterance that is a single part."""
        on_guess, self._on_guess = self._on_guess, None
        if on_guess is not None and last.result is not None and not self._parts:
            on_guess(last.result)

    def resume(self) -> None:
        """It was not over."""
        self._is_silent = False
        self._on_guess = None
        self._last_pause = (self._speech_end + self._audio.end) // 2
        if self._prepared is not None:
            self._prepared.cancel()
            if self._prepared.time is not None:
                self._on_wasted(self._prepared.time.seconds)
            self._prepared = None

    def end(self) -> None:
        """No more hypotheses from here on."""
        self._on_guess = None
        if self._following is not None:
            self._following.cancel()

    async def finish(self) -> AsrResult:
        """The final result. Raises EngineError, Overloaded."""
        self.end()
        if self._prepared is None and not self._is_silent:
            self._prepared = SegmentDecode(
                self._recogniser, self._item(is_final=True), self._audio.start
            )
        parts = [*self._parts, *([self._prepared] if self._prepared else [])]
        for part in parts:
            part.begin(self._tasks, DecodePriority.FINAL)
        results = [await part.final(self._tasks) for part in parts]
        if len(parts) == 1:
            return results[0]
        return stitch_results(
            [
                (shift_times(result, part.start, len(part.item.pcm)), part.duration_ms)
                for result, part in zip(results, parts, strict=True)
            ]
        )

    def discard(self) -> None:
        """It came to nothing."""
        self.resume()
        self.end()
        for part in self._parts:
            part.cancel()
            if part.result is None:
                self._recogniser.forget(part.item.utterance)
        self._recogniser.forget(self._open_id)

    @property
    def _open_id(self) -> str:
        """Engines keep state under it, so each part has its own."""
        return f"{self.id}.{len(self._parts)}" if self._parts else self.id

    def _wants_partial(self) -> bool:
        if self._is_silent or self.audio_ms < FIRST_PARTIAL_MS:
            return False
        if self._prepared is not None:
            return self._prepared.end > self._told
        return self._audio.end - self._told >= _EVERY and self._is_bounded

    @property
    def _is_bounded(self) -> bool:
        return self._audio.duration_ms <= min(MAX_OPEN_MS, self._window_ms)

    def _close_parts(self) -> None:
        """Fix what is long enough or long over; nothing longer than the window may be open."""
        if self._is_silent:
            self._audio.forget(self._audio.end - _PAD)
            return
        prepared = self._prepared
        if prepared is not None:
            pause_ms = samples_to_ms(self._audio.end - self._speech_end, ASR_RATE_HZ)
            is_full = self._audio.duration_ms > self._window_ms
            if self._window_ms < float("inf") and (
                is_full or ends_part(pause_ms, prepared.duration_ms, self._window_ms)
            ):
                self._prepared = None
                self._close(prepared)
                self._is_silent = True
            return
        while self._audio.duration_ms > self._window_ms:
            pcm = self._audio.pcm()
            window = ms_to_samples(self._window_ms, ASR_RATE_HZ)
            search, cut = window - window // 3, self._last_pause - self._audio.start
            if not search <= cut <= window:
                cut = search + quietest(pcm[search:window])
            item = AsrItem(self._open_id, pcm[:cut].copy(), True, self._final_options())
            part = SegmentDecode(self._recogniser, item, self._audio.start)
            part.begin(self._tasks, DecodePriority.SPECULATIVE)
            self._close(part)

    def _close(self, part: SegmentDecode) -> None:
        self._parts.append(part)
        self._newest = None
        self._audio.forget(part.end)

    async def _follow(
        self,
        on_hypothesis: OnHypothesis,
        on_error: Callable[[EarshotError], None],
        on_nothing: Callable[[], None],
    ) -> None:
        cadence = PartialPacing()
        while True:
            await self._grew.wait()
            await asyncio.sleep(cadence.wait_s(self._clock.now()))
            self._grew.clear()
            if not self._wants_partial():
                continue
            cadence.asked(self._clock.now())
            try:
                part = await self._hypothesis()
                returned = self._clock.now()
                words = await self._words_up_to(part)
            except OverloadedError:
                cadence.refused()  # partials are the first thing to go under load
                continue
            except EngineError as exc:
                cadence.refused()
                on_error(exc)
                continue
            cadence.returned(returned)
            if words:
                audio_ms = round(samples_to_ms(part.end, ASR_RATE_HZ))
                on_hypothesis(self._prefix.push(words), audio_ms)
            else:
                on_nothing()
            if self._recogniser.info.is_incremental and part.end >= self._speech_end > 0:
                self._tell_guess(part)

    async def _hypothesis(self) -> SegmentDecode:
        """What was said so far in the open part; in a pause, what its decode found."""
        prepared = self._prepared
        if prepared is not None:
            self._told = prepared.end
            await prepared.tried()
            if prepared.error is not None and prepared.result is None:
                raise prepared.error
            return prepared
        start, item = self._audio.start, self._item(is_final=False)
        self._told = start + len(item.pcm)
        result = await self._recogniser.decode(item, DecodePriority.PARTIAL)
        part = SegmentDecode(self._recogniser, item, start, result)
        if start == self._audio.start:
            self._newest = part
        return part

    async def _words_up_to(self, last: SegmentDecode) -> str:
        """All words up to the end of `last`. Raises EngineError, Overloaded of a part before it."""
        parts = [part for part in self._parts if part.start < last.start]
        for part in parts:
            part.begin(self._tasks, DecodePriority.SPECULATIVE)
            await part.tried()
            if part.result is None and part.error is not None:
                raise part.error
        results = [part.result for part in (*parts, last)]
        if last.result is None or not last.result.text:
            return ""
        texts = [result.text for result in results if result is not None]
        return join_texts(texts) if len(texts) == len(results) else ""

    def _item(self, *, is_final: bool) -> AsrItem:
        options = self._final_options()
        if not is_final:
            options = _cheaper(options)
        return AsrItem(self._open_id, self._audio.pcm(), is_final, options)

    def _final_options(self) -> AsrOptions:
        """The first words decide on the language of all that follow, as in `recording`."""
        known = [part.result for part in self._parts if part.result and part.result.text]
        if known and self._options.language is None:
            return replace(self._options, language=known[0].language)
        return self._options


def _cheaper(options: AsrOptions) -> AsrOptions:
    """For words that will change anyway: no beam, no second try, no detail."""
    return replace(
        options,
        beam_size=None if options.beam_size is None else 1,
        temperatures=options.temperatures[:1],
        timestamps="none",
        token_logprobs=False,
    )
