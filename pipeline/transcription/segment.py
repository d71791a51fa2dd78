"""Work on a recording that comes as it is spoken, before it is known to be over."""

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
"New audio that an incremental engine is given at once: more often would cost more than it saves."

_FEED = ms_to_samples(FEED_MS, ASR_RATE_HZ)


@dataclass(frozen=True, slots=True)
class EarlyDecode:
    """A piece that is being recognised, without its samples: results wait long for their reader."""

    start: int
    samples: int
    speech_end: int
    utterance: str
    options: AsrOptions
    task: asyncio.Task[AsrResult | EngineError | OverloadedError]

    def covers(self, piece: AudioSegment, options: AsrOptions) -> bool:
        """It heard all of the piece but silence at the end, as it is to be heard."""
        heard = self.start, self.speech_end, self.options
        return heard == (piece.start, piece.speech_end, options)

    def drop(self, recogniser: Recogniser) -> None:
        """Nobody wants it any more."""
        if not self.task.done():
            self.task.cancel()
            recogniser.forget(self.utterance)


async def decode_or_error(
    recogniser: Recogniser, item: AsrItem, priority: DecodePriority
) -> AsrResult | EngineError | OverloadedError:
    """A decode whose failure is for whoever reads it, not for the group that its task is in."""
    try:
        return await recogniser.decode(item, priority)
    except (EngineError, OverloadedError) as exc:
        return exc


class PauseDecoder:
    """Each pause begins a decode, which is the final one if nothing more is said.

    The last word of an incremental engine differs from what it hears on the way: it is fed
    instead, so that at the end only the newest audio is left for it.
    """

    def __init__(
        self,
        recogniser: Recogniser,
        options: AsrOptions,
        tasks: asyncio.TaskGroup,
        on_wasted: OnWastedWork,
    ) -> None:
        """`on_wasted`: told of each decode that was not the final one."""
        self._recogniser, self._tasks, self._on_wasted = recogniser, tasks, on_wasted
        self.options = options
        "Of what is begun next; they change when the language becomes known."
        self._guess: EarlyDecode | None = None
        self._guess_time: TaskTime | None = None
        self._fed: EarlyDecode | None = None
        self._utterance = new_id("item")
        "Under which an incremental engine is fed."

    def hear(self, cutter: Segmenter) -> None:
        """What has come so far."""
        if self._recogniser.info.is_incremental:
            self._feed(cutter.whole())
            return
        tail = cutter.tail()
        if tail is not None and self._guess is not None and self._guess.covers(tail, self.options):
            return
        self._drop_guess()
        if tail is not None:
            item = AsrItem(new_id("item"), tail.pcm, True, self.options)
            self._guess = self._begin(tail, item, DecodePriority.SPECULATIVE)
            self._guess_time = TaskTime(self._guess.task)

    async def decoded(self, piece: AudioSegment) -> EarlyDecode | None:
        """The piece's decode, if it is known already or on its way; at most once."""
        guess = self._guess
        if guess is None or not guess.covers(piece, self.options):
            return None
        self._recogniser.hurry(guess.utterance)
        if not isinstance(await guess.task, AsrResult):
            return None
        self._guess = None
        return guess

    def utterance(self, piece: AudioSegment) -> str:
        """The id to decode the piece under: of what was fed, if that is its beginning."""
        fed = self._fed
        if fed is None or piece.start != fed.start or len(piece.pcm) < fed.samples:
            return new_id("item")
        self._fed = None
        return fed.utterance

    def drop(self) -> None:
        """It is over."""
        self._drop_guess()
        if self._fed is not None:
            self._fed.task.cancel()
            self._recogniser.forget(self._fed.utterance)
            self._fed = None

    def _feed(self, whole: AudioSegment | None) -> None:
        if whole is None:
            return
        fed = self._fed
        if fed is not None and (not fed.task.done() or len(whole.pcm) - fed.samples < _FEED):
            return
        if len(whole.pcm) >= _FEED:
            item = AsrItem(self._utterance, whole.pcm, False, self.options)
            self._fed = self._begin(whole, item, DecodePriority.PARTIAL)

    def _begin(self, piece: AudioSegment, item: AsrItem, priority: DecodePriority) -> EarlyDecode:
        asked = decode_or_error(self._recogniser, item, priority)
        task = self._tasks.create_task(asked, name=item.utterance)
        return EarlyDecode(
            piece.start, len(piece.pcm), piece.speech_end, item.utterance, item.options, task
        )

    def _drop_guess(self) -> None:
        guess, self._guess = self._guess, None
        if guess is not None and self._guess_time is not None:
            guess.drop(self._recogniser)
            self._on_wasted(self._guess_time.seconds)


# A stretch of an utterance whose words do not change any more: decoded once, begun early.

logger = logging.getLogger(__name__)


class SegmentDecode:
    """One final decode. `result` is None until it is known; a refused one may begin again."""

    def __init__(
        self, recogniser: Recogniser, item: AsrItem, start: int, result: AsrResult | None = None
    ) -> None:
        self._recogniser, self.item, self.start = recogniser, item, start
        self.result = result
        self._task: asyncio.Task[None] | None = None
        self.time: TaskTime | None = None
        "Of the newest try; None: none was needed."
        self.error: EngineError | OverloadedError | None = None
        "Why the last try failed."

    @property
    def end(self) -> int:
        """One past its last sample, in the utterance."""
        return self.start + len(self.item.pcm)

    @property
    def duration_ms(self) -> float:
        return samples_to_ms(len(self.item.pcm), ASR_RATE_HZ)

    def begin(self, tasks: asyncio.TaskGroup, priority: DecodePriority) -> None:
        """Decode it, unless it is known; FINAL hurries one that was begun."""
        if self.result is not None:
            return
        if self._task is None or self._task.done():
            self._task = tasks.create_task(self._decode(priority), name=f"part-{self.start}")
            self.time = TaskTime(self._task)
        elif priority is DecodePriority.FINAL:
            self._recogniser.hurry(self.item.utterance)

    async def tried(self) -> None:
        """Wait for the decode that was begun. Cancelling the waiter does not cancel it."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def final(self, tasks: asyncio.TaskGroup) -> AsrResult:
        """Its words, now urgent. Raises EngineError, Overloaded.

        A guess that was refused is made good. What a worker was lost with is not tried again: it
        may end the next one, too.
        """
        self.begin(tasks, DecodePriority.FINAL)
        await self.tried()
        if self.result is None and isinstance(self.error, OverloadedError):
            self.begin(tasks, DecodePriority.FINAL)
            await self.tried()
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
            logger.info("! part of %s: %s", self.item.utterance, exc)
