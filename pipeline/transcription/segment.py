"""Decodes of a recording that arrives as it is spoken, begun before it is known to be over."""

import asyncio
import logging
from dataclasses import dataclass

from core.audio import ASR_RATE_HZ, ms_to_samples, samples_to_ms
from core.errors import EngineError, OverloadedError
from core.ids import new_id
from engines.base import AsrItem, AsrOptions, AsrResult
from pipeline.shared.work_time import TaskTime
from pipeline.transcription.recogniser import OnWastedWork, Recogniser
from pipeline.transcription.segmenter import AudioSegment, Segmenter
from serving.scheduling.scheduler import DecodePriority

FEED_MS = 400
"New audio after which an incremental engine is fed. More often would cost more than it saves."

_FEED = ms_to_samples(FEED_MS, ASR_RATE_HZ)


@dataclass(frozen=True, slots=True)
class EarlyDecode:
    """A segment that is being recognised, without its samples: results may wait long to be read."""

    start: int
    "Sample of the recording at which it begins."
    samples: int
    speech_end: int
    "Sample of the recording one past its last speech."
    utterance: str
    "Id of the utterance under which the recogniser knows it."
    options: AsrOptions
    task: asyncio.Task[AsrResult | EngineError | OverloadedError]

    def covers(self, piece: AudioSegment, options: AsrOptions) -> bool:
        """Returns whether it decodes all of the segment, but perhaps silence at the end, with these
        options."""
        heard = self.start, self.speech_end, self.options
        return heard == (piece.start, piece.speech_end, options)

    def drop(self, recogniser: Recogniser) -> None:
        """Cancels the decode: its result is not needed any more."""
        if not self.task.done():
            self.task.cancel()
            recogniser.forget(self.utterance)


async def decode_or_error(
    recogniser: Recogniser, item: AsrItem, priority: DecodePriority
) -> AsrResult | EngineError | OverloadedError:
    """Returns the result of a decode, or its error. The error is for the reader of the result;
    raised in the task, it would end the whole task group."""
    try:
        return await recogniser.decode(item, priority)
    except (EngineError, OverloadedError) as exc:
        return exc


class PauseDecoder:
    """Begins a decode at each pause, which is the final one if nothing more is said.

    An incremental engine's final result differs from its partials, so such an engine is fed
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
        self._pause_decode: EarlyDecode | None = None
        self._pause_decode_time: TaskTime | None = None
        self._growing_decode: EarlyDecode | None = None
        self._utterance = new_id("item")
        "Utterance id under which an incremental engine is fed."

    def take_audio(self, segmenter: Segmenter) -> None:
        """Looks at the audio so far, and begins or feeds a decode if it is time."""
        if self._recogniser.info.is_incremental:
            self._feed(segmenter.whole())
            return
        tail = segmenter.tail()
        if (
            tail is not None
            and self._pause_decode is not None
            and self._pause_decode.covers(tail, self.options)
        ):
            return
        self._drop_pause_decode()
        if tail is not None:
            item = AsrItem(new_id("item"), tail.pcm, True, self.options)
            self._pause_decode = self._begin(tail, item, DecodePriority.SPECULATIVE)
            self._pause_decode_time = TaskTime(self._pause_decode.task)

    async def finished_decode(self, piece: AudioSegment) -> EarlyDecode | None:
        """Returns the decode of this segment if it has begun and succeeds, else None. Each is
        returned once."""
        early = self._pause_decode
        if early is None or not early.covers(piece, self.options):
            return None
        self._recogniser.hurry(early.utterance)
        if not isinstance(await early.task, AsrResult):
            return None
        self._pause_decode = None
        return early

    def utterance(self, piece: AudioSegment) -> str:
        """Returns the utterance id to decode the segment under: the one that was fed, if the engine
        already has the beginning of the segment, else a new one."""
        growing = self._growing_decode
        if growing is None or piece.start != growing.start or len(piece.pcm) < growing.samples:
            return new_id("item")
        self._growing_decode = None
        return growing.utterance

    def drop(self) -> None:
        """Cancels what is not needed at the end of the recording."""
        self._drop_pause_decode()
        if self._growing_decode is not None:
            self._growing_decode.task.cancel()
            self._recogniser.forget(self._growing_decode.utterance)
            self._growing_decode = None

    def _feed(self, whole: AudioSegment | None) -> None:
        if whole is None:
            return
        growing = self._growing_decode
        if growing is not None and (
            not growing.task.done() or len(whole.pcm) - growing.samples < _FEED
        ):
            return
        if len(whole.pcm) >= _FEED:
            item = AsrItem(self._utterance, whole.pcm, False, self.options)
            self._growing_decode = self._begin(whole, item, DecodePriority.PARTIAL)

    def _begin(self, piece: AudioSegment, item: AsrItem, priority: DecodePriority) -> EarlyDecode:
        asked = decode_or_error(self._recogniser, item, priority)
        task = self._tasks.create_task(asked, name=item.utterance)
        return EarlyDecode(
            piece.start, len(piece.pcm), piece.speech_end, item.utterance, item.options, task
        )

    def _drop_pause_decode(self) -> None:
        early, self._pause_decode = self._pause_decode, None
        if early is not None and self._pause_decode_time is not None:
            early.drop(self._recogniser)
            self._on_wasted(self._pause_decode_time.seconds)


# A segment of an utterance whose words do not change any more: decoded once, as early as possible.

logger = logging.getLogger(__name__)


class SegmentDecode:
    """One final decode of a segment. A decode that was refused may begin again.

    `start`: sample of the utterance at which it begins. `result`: None until it is known.
    """

    def __init__(
        self, recogniser: Recogniser, item: AsrItem, start: int, result: AsrResult | None = None
    ) -> None:
        self._recogniser, self.item, self.start = recogniser, item, start
        self.result = result
        self._task: asyncio.Task[None] | None = None
        self.time: TaskTime | None = None
        "Time of the newest attempt; None: none was needed."
        self.error: EngineError | OverloadedError | None = None
        "Error of the last attempt."

    @property
    def end(self) -> int:
        """Sample of the utterance one past its last."""
        return self.start + len(self.item.pcm)

    @property
    def duration_ms(self) -> float:
        return samples_to_ms(len(self.item.pcm), ASR_RATE_HZ)

    def begin(self, tasks: asyncio.TaskGroup, priority: DecodePriority) -> None:
        """Begins the decode, unless it runs or is known. FINAL makes a running one urgent."""
        if self.result is not None:
            return
        if self._task is None or self._task.done():
            self._task = tasks.create_task(self._decode(priority), name=f"part-{self.start}")
            self.time = TaskTime(self._task)
        elif priority is DecodePriority.FINAL:
            self._recogniser.hurry(self.item.utterance)

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
        if self._task is not None:
            self._task.cancel()

    async def _decode(self, priority: DecodePriority) -> None:
        try:
            self.result = await self._recogniser.decode(self.item, priority)
        except (EngineError, OverloadedError) as exc:
            self.error = exc
            logger.info("! segment of %s not recognised: %s", self.item.utterance, exc)
