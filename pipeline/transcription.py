"""Utterances as streams of hypotheses over a batched recogniser: written once, for every door."""

import asyncio
import logging
from collections.abc import Callable

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms
from core.errors import EarshotError, EngineError, Overloaded
from engines.base import AsrItem, AsrResult
from pipeline.engines import Recogniser
from pipeline.stable_prefix import Agreed, StablePrefix
from serving.scheduler import Priority

logger = logging.getLogger(__name__)

FIRST_PARTIAL_MS = 700
"Padding and a word or two: on less, recognisers guess, and two equal guesses look stable."
PARTIAL_EVERY_MS = 200
"New audio that a partial waits for: about one syllable, so that words appear as they are spoken."

MAX_PARTIAL_MS = 60_000
"Longer is only what push-to-talk holds: decoding all of it again and again would starve others."

OnHypothesis = Callable[[Agreed, int], None]
"Words so far, and how many ms of audio they cover."


class Utterance:
    """One utterance: audio in, hypotheses while it is spoken, one final result.

    The caller owns the tasks: `follow` runs beside `push`, `prepare` creates one in its group.
    """

    def __init__(
        self, recogniser: Recogniser, utterance_id: str, language: str | None, prompt: str = ""
    ) -> None:
        self.id = utterance_id
        self._recogniser = recogniser
        self._language, self._prompt = language, prompt
        self._chunks: list[Pcm] = []
        self._samples = 0
        self._decoded_samples = 0
        self._grew = asyncio.Event()
        self._following: asyncio.Task[None] | None = None
        self._prepared: asyncio.Task[AsrResult | None] | None = None

    @property
    def audio_ms(self) -> float:
        return samples_to_ms(self._samples, ASR_RATE_HZ)

    def push(self, pcm: Pcm) -> None:
        """The next samples, 16 kHz."""
        self._chunks.append(pcm)
        self._samples += len(pcm)
        new_ms = samples_to_ms(self._samples - self._decoded_samples, ASR_RATE_HZ)
        if new_ms >= PARTIAL_EVERY_MS and FIRST_PARTIAL_MS <= self.audio_ms <= MAX_PARTIAL_MS:
            self._grew.set()

    def follow(
        self,
        tasks: asyncio.TaskGroup,
        on_hypothesis: OnHypothesis,
        on_error: Callable[[EarshotError], None],
    ) -> None:
        """Report hypotheses until the utterance ends. Errors end the reports, not the utterance."""
        self._following = tasks.create_task(self._follow(on_hypothesis, on_error))

    def prepare(self, tasks: asyncio.TaskGroup) -> None:
        """It may be over: begin the final decode, so that its time hides in the silence.

        An incremental engine needs no head start, and would lose its state.
        """
        if self._prepared is None and not self._recogniser.info.is_incremental:
            item = self._item(is_final=True)
            self._prepared = tasks.create_task(self._speculate(item))

    def resume(self) -> None:
        """It was not over."""
        if self._prepared is not None:
            self._prepared.cancel()
            self._prepared = None

    def end(self) -> None:
        """No more hypotheses from here on."""
        if self._following is not None:
            self._following.cancel()

    async def finish(self) -> AsrResult:
        """The final result. Raises EngineError, Overloaded."""
        self.end()
        if self._prepared is not None:
            result = await self._prepared
            if result is not None:
                return result
        return await self._recogniser.decode(self._item(is_final=True), Priority.FINAL)

    def discard(self) -> None:
        """It came to nothing."""
        self.resume()
        self.end()
        self._recogniser.forget(self.id)

    async def _follow(
        self, on_hypothesis: OnHypothesis, on_error: Callable[[EarshotError], None]
    ) -> None:
        prefix = StablePrefix()
        while True:
            await self._grew.wait()
            self._grew.clear()
            item = self._item(is_final=False)
            self._decoded_samples = len(item.pcm)
            try:
                result = await self._recogniser.decode(item, Priority.PARTIAL)
            except Overloaded:
                continue  # partials are the first thing to go under load
            except EngineError as exc:
                on_error(exc)
                continue
            if result.text:
                audio_ms = samples_to_ms(len(item.pcm), ASR_RATE_HZ)
                on_hypothesis(prefix.push(result.text), round(audio_ms))

    async def _speculate(self, item: AsrItem) -> AsrResult | None:
        try:
            return await self._recogniser.decode(item, Priority.SPECULATIVE)
        except (EngineError, Overloaded) as exc:
            logger.info("! speculative decode: %s", exc)
            return None

    def _item(self, *, is_final: bool) -> AsrItem:
        if len(self._chunks) != 1:
            joined = np.concatenate(self._chunks) if self._chunks else np.zeros(0, np.int16)
            self._chunks = [joined]
        return AsrItem(self.id, self._chunks[0], is_final, self._language, self._prompt)
