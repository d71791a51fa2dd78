"""Memory budget of the loaded models: decides which model gets memory, which waits, and which is
unloaded."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from core.errors import EngineError, OverloadedError
from serving.model import ModelLifetime, SharedModel
from serving.placement.whisper import MemoryByDevice

ROOM_WAIT_S = 10.0
"""Longest wait for room. Within it an utterance usually ends; after it the caller gets
OverloadedError."""


class MemoryBudget:
    """Memory shared by all loaded models. It only decides; `ModelRegistry` loads and unloads."""

    def __init__(self, room: MemoryByDevice, pinned: SharedModel) -> None:
        """Creates the budget. `room`: MB that models may take, by device. `pinned`: the model that
        always gets its room, and keeps it."""
        self._room, self._pinned = room, pinned
        self.lives: set[ModelLifetime] = set()
        "Lives of all models that are in memory or wait for room."
        self._freed = asyncio.Event()

    def freed(self) -> None:
        """Notes that a model became idle or was unloaded, so that waiting models try again."""
        self._freed.set()

    async def reserve(self, life: ModelLifetime) -> None:
        """Waits for room, and unloads the models that have been idle longest if necessary.

        Raises EngineError when the model can never fit, OverloadedError when there is no room in
        time.
        """
        model = life.model
        need = dict(model.measured_mb or model.offer.memory_mb)
        if model is not self._pinned:  # the pinned model is loaded even if the estimate is too high
            self._refuse_what_never_fits(model, need)
            try:
                async with asyncio.timeout(ROOM_WAIT_S):
                    await self._until_there_is(need)
            except TimeoutError:
                raise self._full(model) from None
        life.memory_mb = need

    async def _until_there_is(self, need: Mapping[str, float]) -> None:
        while self._lacking(need, self.lives):
            self._send_away(need)
            self._freed.clear()
            await self._freed.wait()

    def _send_away(self, need: Mapping[str, float]) -> None:
        """Asks as many idle models to leave as necessary, in addition to those that are leaving
        already."""
        while lacking := self._lacking(need, [x for x in self.lives if not x.leave.is_set()]):
            victim = self._idle_longest(lacking)
            if victim is None:
                return
            victim.leave.set()
            victim.model.life = None  # from now on a request for this model loads it again

    def _refuse_what_never_fits(self, model: SharedModel, need: Mapping[str, float]) -> None:
        kept = self._pinned.life.memory_mb if self._pinned.life else {}
        for device, need_mb in need.items():
            all_mb, kept_mb = self._room.get(device, 0.0), kept.get(device, 0.0)
            if need_mb > all_mb - kept_mb:
                raise EngineError(
                    "asr",
                    model.offer.name,
                    f"needs about {need_mb:.0f} MB ({device}); recognisers may take {all_mb:.0f},"
                    f" of which {self._pinned.offer.name} keeps {kept_mb:.0f} (asr.memory_mb)",
                )

    def _full(self, model: SharedModel) -> OverloadedError:
        busy = ", ".join(sorted(life.model.offer.name for life in self.lives if life.memory_mb))
        return OverloadedError(
            f"not enough memory for {model.offer.name} in addition to {busy}, which are in use",
            retry_after_s=int(ROOM_WAIT_S),
            code="engine_busy",
        )

    def _lacking(self, need: Mapping[str, float], beside: Collection[ModelLifetime]) -> list[str]:
        """Returns the devices on which `need` does not fit together with the models in `beside`."""
        for life in beside:
            life.measure()
        return [
            device
            for device, mb in need.items()
            if sum(life.memory_mb.get(device, 0.0) for life in beside) + mb
            > self._room.get(device, 0.0)
        ]

    def _idle_longest(self, devices: Sequence[str]) -> ModelLifetime | None:
        idle = [
            life
            for life in self.lives
            if life.served is not None
            and life.model is not self._pinned
            and life.model.uses == 0
            and not life.leave.is_set()
            and any(device in life.memory_mb for device in devices)
        ]
        return min(idle, key=lambda life: life.model.last_used_s, default=None)
