"""Decodes one segment of a live utterance or of a recording, beginning in the pause that may be its
end."""

import asyncio
import logging
from dataclasses import replace

import numpy as np

from core.audio import ASR_RATE_HZ, ms_to_samples, samples_to_ms
from core.conversation.ids import new_id
from core.errors import EngineError, OverloadedError
from engines.base import AsrItem, AsrOptions, AsrResult
from pipeline.shared.work_time import TaskTime
from pipeline.transcription.former_speech import FormerSpeech
from pipeline.transcription.recogniser import OnWastedWork, Recogniser
from pipeline.transcription.segmenter import AudioSegment, Segmenter
from pipeline.transcription.stitching import without_lead
from serving.asr.scheduling import DecodePriority

logger = logging.getLogger(__name__)

FEED_MS = 400
"New audio after which an incremental engine is fed. More often would cost more than it saves."

_FEED = ms_to_samples(FEED_MS, ASR_RATE_HZ)


class SegmentDecode:
    """One decode of a segment. A decode that was refused may begin again.

    It keeps the samples only until the result is known: results may wait long to be read.

        decode = SegmentDecode(recogniser, item, start)
        decode.begin(tasks, DecodePriority.SPECULATIVE)  # in the pause
        result = await decode.final(tasks)               # it was the end; else: decode.drop()
    """

    def __init__(
        self,
        recogniser: Recogniser,
        item: AsrItem,
        start: int,
        *,
        speech_end: int = 0,
        lead: int = 0,
        former: FormerSpeech | None = None,
    ) -> None:
        """`start`: sample of the utterance or recording at which the segment begins.
        `speech_end`: sample one past its last speech, for `covers`. `lead`: samples of
        silence that a recogniser without a window gets before the audio; times do not count
        it. `former`: speech that is decoded with it, and does not count either."""
        self._recogniser = recogniser
        self._item: AsrItem | None = item
        self.utterance, self.options = item.utterance, item.options
        self.start, self.samples, self.speech_end = start, len(item.pcm), speech_end
        self._lead, self._former = lead, former
        self.result: AsrResult | None = None
        "None until it is known."
        self.error: EngineError | OverloadedError | None = None
        "Error of the last attempt."
        self.time: TaskTime | None = None
        "Running time of the newest attempt that `begin` started; None: it started none."
        self._task: asyncio.Task[None] | None = None

    @property
    def end(self) -> int:
        """Sample of the utterance or recording one past its last."""
        return self.start + self.samples

    @property
    def duration_ms(self) -> float:
        return samples_to_ms(self.samples, ASR_RATE_HZ)

    @property
    def is_running(self) -> bool:
        """True while a decode that was begun has not ended."""
        return self._task is not None and not self._task.done()

    def covers(self, segment: AudioSegment, options: AsrOptions) -> bool:
        """Returns whether this decode is for the same segment and options, apart from silence at
        the end."""
        own = self.start, self.speech_end, self.options
        return own == (segment.start, segment.speech_end, options)

    def can_be_final(self, speech_end: int, options: AsrOptions) -> bool:
        """Returns whether the result of this partial is that of a final decode with `options`. It
        covers all of the speech, which ends before sample `speech_end` of the utterance."""
        covers_speech = self.end >= speech_end and self.options == options
        return (
            covers_speech
            and self.result is not None
            and not self.result.is_doubtful_partial
            and (self._former is None or _is_sure(self.result))
        )

    def begin(self, tasks: asyncio.TaskGroup, priority: DecodePriority) -> None:
        """Begins the decode, unless it runs or its result is known. With the priority FINAL, a
        running decode becomes urgent."""
        if self.result is not None:
            return
        if not self.is_running:
            self._task = tasks.create_task(self.attempt(priority), name=f"segment-{self.start}")
            self.time = TaskTime(self._task)
        elif priority is DecodePriority.FINAL:
            self.promote()

    def promote(self) -> None:
        """Makes the decode urgent: its result is needed now."""
        self._recogniser.promote(self.utterance)

    async def attempt(self, priority: DecodePriority) -> None:
        """Decodes once, in the caller's task. Sets `result` or `error`: an error is for the reader
        of the result; raised in a task, it would end the whole task group."""
        assert self._item is not None
        try:
            self.result = await self._decode(self._item, priority)
            self._item = None
        except (EngineError, OverloadedError) as exc:
            self.error = exc
            # partial results are the first work that is refused under load
            if priority is not DecodePriority.PARTIAL:
                logger.info("! segment of %s not recognised: %s", self.utterance, exc)

    async def _decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        """Decodes the audio with what it gets before it. Returns times of the audio alone."""
        lead, pcm = self._lead, item.pcm
        if (former := self._former) is not None:
            together = await self._recogniser.decode(former.before(item), priority)
            # Known words make the recogniser sure that somebody speaks, also in noise after them.
            # So words that it is not sure of must pass alone. A partial is not worth two decodes.
            if not item.is_final or _is_sure(together):
                return without_lead(together, len(former.pcm), len(pcm))
        # Whisper, which has a window, does not hear better with silence before the speech.
        if not lead or self._recogniser.info.window_ms is not None:
            return await self._recogniser.decode(item, priority)
        padded = replace(item, pcm=np.pad(pcm, (lead, 0)))
        return without_lead(await self._recogniser.decode(padded, priority), lead, len(pcm))

    async def wait(self) -> None:
        """Waits for the decode that was begun. Cancelling the waiter does not cancel the decode."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def final(self, tasks: asyncio.TaskGroup) -> AsrResult:
        """Returns the result, now urgently. Raises EngineError, OverloadedError.

        A speculative decode that was refused for overload is repeated. One that failed with its
        worker is not: it might crash the next worker, too.
        """
        self.begin(tasks, DecodePriority.FINAL)
        await self.wait()
        if self.result is None and isinstance(self.error, OverloadedError):
            self.begin(tasks, DecodePriority.FINAL)
            await self.wait()
        if self.result is None:
            raise self.error or asyncio.CancelledError
        return self.result

    def cancel(self) -> None:
        """Cancels the decode, if it runs."""
        if self._task is not None:
            self._task.cancel()

    def drop(self, on_wasted: OnWastedWork) -> None:
        """Cancels the decode, as speech went on after the pause. `on_wasted`: called with the
        seconds of work that it had cost."""
        self.cancel()
        if self.time is not None:
            on_wasted(self.time.seconds)


def _is_sure(result: AsrResult) -> bool:
    """Returns whether a decode with former speech may decide the words."""
    return bool(result.text) and not result.is_unsure


class PauseDecoder:
    """Begins a decode at each pause of a recording that arrives as it is spoken. If nothing more is
    said, that decode is the final one.

    An incremental engine's final result differs from its partials. So such an engine is fed
    instead: at the end, only the newest audio is left to decode.
    """

    def __init__(
        self,
        recogniser: Recogniser,
        options: AsrOptions,
        tasks: asyncio.TaskGroup,
        on_wasted: OnWastedWork,
    ) -> None:
        """`on_wasted`: called with the seconds of each decode that was not the final one."""
        self._recogniser, self._tasks, self._on_wasted = recogniser, tasks, on_wasted
        self.options = options
        "Options of the next decodes; they change when the language becomes known."
        self._pause_decode: SegmentDecode | None = None
        self._growing_decode: SegmentDecode | None = None
        self._utterance = new_id("item")
        "Utterance id under which an incremental engine is fed."

    def take_audio(self, segmenter: Segmenter) -> None:
        """Looks at the audio so far, and begins or feeds a decode if it is time."""
        if self._recogniser.info.is_incremental:
            self._feed(segmenter.whole())
            return
        tail, decode = segmenter.tail(), self._pause_decode
        if tail is not None and decode is not None and decode.covers(tail, self.options):
            return
        self._drop_pause_decode()
        if tail is not None:
            item = AsrItem(new_id("item"), tail.pcm, True, self.options)
            self._pause_decode = self._begin(tail, item)

    async def finished_decode(self, segment: AudioSegment) -> SegmentDecode | None:
        """Returns the decode of this segment if it has begun and succeeds, else None. Each is
        returned once."""
        early = self._pause_decode
        if early is None or not early.covers(segment, self.options):
            return None
        early.promote()
        await early.wait()
        if early.result is None:
            return None
        self._pause_decode = None
        return early

    def utterance(self, segment: AudioSegment) -> str:
        """Returns the utterance id to decode the segment under: the one that was fed, if the engine
        already has the beginning of the segment, else a new one."""
        growing = self._growing_decode
        if growing is None or segment.start != growing.start or len(segment.pcm) < growing.samples:
            return new_id("item")
        self._growing_decode = None
        return growing.utterance

    def drop(self) -> None:
        """Cancels what is not needed at the end of the recording."""
        self._drop_pause_decode()
        if self._growing_decode is not None:
            self._growing_decode.cancel()
            self._recogniser.forget(self._growing_decode.utterance)
            self._growing_decode = None

    def _feed(self, whole: AudioSegment | None) -> None:
        if whole is None:
            return
        growing = self._growing_decode
        if growing is not None and (growing.is_running or len(whole.pcm) - growing.samples < _FEED):
            return
        if len(whole.pcm) >= _FEED:
            item = AsrItem(self._utterance, whole.pcm, False, self.options)
            self._growing_decode = self._begin(whole, item)

    def _begin(self, segment: AudioSegment, item: AsrItem) -> SegmentDecode:
        """Begins the final decode of a segment, or feeds an incremental engine."""
        start, end = segment.start, segment.speech_end
        decode = SegmentDecode(self._recogniser, item, start, speech_end=end, lead=segment.lead)
        is_fed = not item.is_final
        decode.begin(self._tasks, DecodePriority.PARTIAL if is_fed else DecodePriority.SPECULATIVE)
        return decode

    def _drop_pause_decode(self) -> None:
        early, self._pause_decode = self._pause_decode, None
        if early is None:
            return
        if early.is_running:
            self._recogniser.forget(early.utterance)
        early.drop(self._on_wasted)
