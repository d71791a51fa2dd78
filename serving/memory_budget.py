"""The memory that loaded models share: who has how much, who must wait, who goes first."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from core.errors import EngineError, OverloadedError
from serving.model import ModelLifetime, SharedModel
from serving.placement.whisper import MemoryByDevice

ROOM_WAIT_S = 10.0
"An utterance ends within it, as a rule; who waits longer is told to come back."


class MemoryBudget:
    """Decides; the registry loads and unloads. `pinned` always gets its room, and keeps it."""

    def __init__(self, room: MemoryByDevice, pinned: SharedModel) -> None:
        self._room, self._pinned = room, pinned
        self.lives: set[ModelLifetime] = set()
        self._freed = asyncio.Event()

    def freed(self) -> None:
        """A model became idle, or left."""
        self._freed.set()

    async def reserve(self, life: ModelLifetime) -> None:
        """Wait for room, sending away who was idle longest.

        Raises EngineError when the model never fits, Overloaded when it does not in time.
        """
        model = life.model
        need = dict(model.measured_mb or model.offer.memory_mb)
        if model is not self._pinned:
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
        """As many idle ones as it takes, beside those that are leaving already."""
        while lacking := self._lacking(need, [x for x in self.lives if not x.leave.is_set()]):
            victim = self._idle_longest(lacking)
            if victim is None:
                return
            victim.leave.set()
            victim.model.life = None  # whoever asks for it from now on loads it anew

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
            f"no room for {model.offer.name} beside {busy}, which are in use",
            retry_after_s=int(ROOM_WAIT_S),
            code="engine_busy",
        )

    def _lacking(self, need: Mapping[str, float], beside: Collection[ModelLifetime]) -> list[str]:
        """Devices without room for it beside these."""
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
