"""Workers of the stages without a model: what they write is known before."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from threading import Semaphore
from typing import TypeVar

import numpy as np

from core.errors import OverloadedError
from engines.base.codec import CodecInfo
from engines.base.voice import StageTime
from engines.tts.bark.layout import COARSE_CODEBOOKS, BarkLayout
from engines.tts.bark.sequence_worker import SequenceWorker
from engines.tts.bark.settings import Settings
from engines.tts.bark.stage_pool import StagePool, StageWorker
from engines.tts.bark.stage_tokens import FineItem, SoundItem, coarse_order, semantic_order
from engines.tts.bark.stages import BarkStages
from engines.tts.token_model.backend import IdOrder, NewId, TokenRequest

FRAME_SAMPLES = 320
CODEC = CodecInfo("encodec", "none", 24_000, FRAME_SAMPLES, (2, 8), 32)
PATIENCE_S = 10

ResultT = TypeVar("ResultT")


class CountingBackend:
    """A `TokenBackend`. The ids of a sequence count up from the number of its prompt's first id. It
    ends after `length` ids, if the order has an end marker."""

    context = 64

    def __init__(self, order: IdOrder, slots: int = 2, length: int = 9) -> None:
        self.slots = slots
        self._order, self._length = order, length
        self.running: dict[int, tuple[TokenRequest, int]] = {}
        self.requests: list[TokenRequest] = []
        self.most_running = 0

    def start(self, request: TokenRequest) -> int:
        if len(self.running) == self.slots:
            raise OverloadedError("full", retry_after_s=1)
        self.requests.append(request)
        number = len(self.requests)
        self.running[number] = (request, 0)
        self.most_running = max(self.most_running, len(self.running))
        return number

    def step(self) -> Mapping[int, NewId]:
        found = {}
        for number, (request, written) in list(self.running.items()):
            allowed = self._order(written)
            is_stop = allowed.stop is not None and written == self._length
            new_id = allowed.first + (request.prompt[0] + written) % allowed.count
            is_last = is_stop or written + 1 == request.max_ids
            found[number] = NewId(allowed.stop if is_stop and allowed.stop else new_id, is_last)
            self.running[number] = (request, written + 1)
            if is_last:
                self.cancel(number)
        return found

    def cancel(self, number: int) -> None:
        self.running.pop(number, None)


class RepeatingFine:
    """A `StageWorker` of the fine stage: every finer code is that of the first codebook."""

    def __init__(self, slots: int = 2) -> None:
        self.slots = slots
        self.items: dict[int, FineItem] = {}
        self._next = 0

    def start(self, item: FineItem) -> int:
        self._next += 1
        self.items[self._next] = item
        return self._next

    def step(self) -> Sequence[int]:
        complete = []
        for number, item in list(self.items.items()):
            codes = item.window_codes().copy()
            codes[:, COARSE_CODEBOOKS:] = codes[:, :1]
            item.push(codes)
            if item.next_window is None:
                complete.append(number)
                self.cancel(number)
        return complete

    def cancel(self, number: int) -> None:
        self.items.pop(number, None)


class NumberCodec:
    """A `StageWorker` of the codec: the samples are the codes of the last codebook / 100."""

    slots = 2

    def __init__(self) -> None:
        self.items: dict[int, SoundItem] = {}
        self._next = 0

    def start(self, item: SoundItem) -> int:
        self._next += 1
        self.items[self._next] = item
        return self._next

    def step(self) -> Sequence[int]:
        complete = list(self.items)
        for item in self.items.values():
            item.sound = np.repeat(item.codes[-1] / 100, FRAME_SAMPLES).astype(np.float32)
        self.items.clear()
        return complete

    def cancel(self, number: int) -> None:
        self.items.pop(number, None)


class GatedWorker:
    """A `StageWorker` whose items are complete after as many steps as they say. It computes a step
    when the test allows one."""

    def __init__(self, slots: int = 2) -> None:
        self.slots = slots
        self.gate = Semaphore(0)
        self.running: dict[int, list[int]] = {}
        self.batches: list[int] = []
        self.fails_next = False
        self._started = Semaphore(0)
        self._next = 0

    async def has_started(self) -> None:
        """Waits for the start of the next item."""
        assert await asyncio.to_thread(self._started.acquire, timeout=PATIENCE_S)

    def start(self, item: list[int]) -> int:
        assert len(self.running) < self.slots
        self._next += 1
        self.running[self._next] = item
        self._started.release()
        return self._next

    def step(self) -> Sequence[int]:
        assert self.gate.acquire(timeout=PATIENCE_S)
        if self.fails_next:
            self.fails_next = False
            raise RuntimeError("out of memory")
        self.batches.append(len(self.running))
        for item in self.running.values():
            item[0] -= 1
        complete = [number for number, item in self.running.items() if item[0] == 0]
        for number in complete:
            self.cancel(number)
        return complete

    def cancel(self, number: int) -> None:
        self.running.pop(number, None)


class ScriptedStages:
    """The stages of a layout with such workers."""

    def __init__(self, layout: BarkLayout, *, fine: StageWorker[FineItem] | None = None) -> None:
        self.semantic = CountingBackend(lambda place: semantic_order(layout, place))
        self.coarse = CountingBackend(lambda place: coarse_order(layout, place))
        self.times: list[StageTime] = []
        note = self.times.append
        semantic_worker = SequenceWorker(self.semantic, stop=layout.semantic_stop)
        self.stages = BarkStages(
            layout,
            Settings(path="-"),
            CODEC,
            StagePool("semantic", [semantic_worker], note),
            StagePool("coarse", [SequenceWorker(self.coarse)], note),
            StagePool("fine", [fine or RepeatingFine()], note),
            StagePool("codec", [NumberCodec()], note),
        )

    def run(self, scenario: Callable[[BarkStages], Awaitable[ResultT]]) -> ResultT:
        """Runs a scenario, and ends the threads."""

        async def main() -> ResultT:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await scenario(self.stages)
            finally:
                await self.stages.aclose()

        return asyncio.run(main())
