"""Memory budget of the loaded models: decides which model gets memory, which waits, and which is
unloaded."""

import asyncio
from collections.abc import Collection, Mapping, Sequence

from core.errors import EngineError, OverloadedError
from serving.models.model import AnyLifetime, AnyModel
from serving.placement.whisper import MemoryByDevice

ROOM_WAIT_S = 10.0
"""Longest wait for room, in which an utterance usually ends. After it the caller gets
OverloadedError."""


class MemoryBudget:
    """Memory shared by all loaded models of all kinds. It only decides; `ModelRegistry` loads and
    unloads."""

    def __init__(self, room: MemoryByDevice, setting: str) -> None:
        """Creates the budget. `room`: MB that models may take, by device. `setting`: name of the
        setting that limits it, for errors."""
        self._room, self._setting = room, setting
        self._pinned: list[AnyModel] = []
        self.lifetimes: set[AnyLifetime] = set()
        "Lifetimes of all models that are in memory or wait for room."
        self._changed = asyncio.Event()

    def pin(self, model: AnyModel) -> None:
        """Makes a model permanent: it always gets its room, and is never unloaded for another."""
        if not self.is_pinned(model):
            self._pinned.append(model)

    def unpin(self, model: AnyModel) -> None:
        """Ends `pin`: the model may be unloaded again when another needs its room."""
        self._pinned = [pinned for pinned in self._pinned if pinned is not model]
        self.retry()

    def is_pinned(self, model: AnyModel) -> bool:
        """Returns True if the model is permanent."""
        return any(model is pinned for pinned in self._pinned)

    def unload(self, lifetime: AnyLifetime) -> None:
        """Ends a model's time in memory. A request for the model that comes from now on loads it
        again."""
        lifetime.unload.set()
        lifetime.model.lifetime = None

    def retry(self) -> None:
        """Lets waiting models try again, because a model became idle or was unloaded."""
        self._changed.set()

    async def reserve(self, lifetime: AnyLifetime) -> None:
        """Waits for room, and unloads the models that have been idle longest if necessary.

        Raises EngineError when the model can never fit, OverloadedError when there is no room in
        time.
        """
        model = lifetime.model
        need_mb = dict(model.measured_mb or model.offer.memory_mb)
        if not self.is_pinned(model):  # a pinned model is loaded even if the estimate is too high
            self._refuse_if_too_large(model, need_mb)
            try:
                async with asyncio.timeout(ROOM_WAIT_S):
                    await self._wait_for_room(need_mb)
            except TimeoutError:
                raise self._full_error(model) from None
        lifetime.memory_mb = need_mb

    async def _wait_for_room(self, need_mb: Mapping[str, float]) -> None:
        while self._full_devices(need_mb, self.lifetimes):
            self._unload_idle(need_mb)
            self._changed.clear()
            await self._changed.wait()

    def _unload_idle(self, need_mb: Mapping[str, float]) -> None:
        """Has as many idle models unloaded as necessary, in addition to those that are being
        unloaded already."""
        while full := self._full_devices(
            need_mb, [lifetime for lifetime in self.lifetimes if not lifetime.unload.is_set()]
        ):
            victim = self._idle_longest(full)
            if victim is None:
                return
            victim.is_evicted = True
            self.unload(victim)

    def _refuse_if_too_large(self, model: AnyModel, need_mb: Mapping[str, float]) -> None:
        for device, mb in need_mb.items():
            room_mb = self._room.get(device, 0.0)
            kept_mb = {
                pinned.offer.name: pinned_mb
                for pinned in self._pinned
                if pinned.lifetime and (pinned_mb := pinned.lifetime.memory_mb.get(device, 0.0))
            }
            if mb > room_mb - sum(kept_mb.values()):
                share = _permanent_share(kept_mb)
                raise EngineError(
                    model.kind,
                    model.offer.name,
                    f"needs about {mb:.0f} MB ({device}); models may take {room_mb:.0f}{share}"
                    f" ({self._setting})",
                )

    def _full_error(self, model: AnyModel) -> OverloadedError:
        names = ", ".join(
            sorted(lifetime.model.offer.name for lifetime in self.lifetimes if lifetime.memory_mb)
        )
        return OverloadedError(
            f"not enough memory for {model.offer.name} in addition to {names}, which are in use",
            retry_after_s=int(ROOM_WAIT_S),
            code="engine_busy",
        )

    def _full_devices(
        self, need_mb: Mapping[str, float], others: Collection[AnyLifetime]
    ) -> list[str]:
        """Returns the devices on which `need_mb` does not fit together with the other models."""
        for lifetime in others:
            lifetime.measure()
        return [
            device
            for device, mb in need_mb.items()
            if sum(lifetime.memory_mb.get(device, 0.0) for lifetime in others) + mb
            > self._room.get(device, 0.0)
        ]

    def idle(self) -> list[AnyLifetime]:
        """Returns the models that may be unloaded, the one that has been idle longest first."""
        idle = [
            lifetime
            for lifetime in self.lifetimes
            if lifetime.loaded is not None
            and not self.is_pinned(lifetime.model)
            and lifetime.model.uses == 0
            and not lifetime.unload.is_set()
        ]
        return sorted(idle, key=lambda lifetime: lifetime.model.last_used_s)

    def _idle_longest(self, devices: Sequence[str]) -> AnyLifetime | None:
        """Returns the model to unload first among those that take memory of these devices."""
        for lifetime in self.idle():
            if any(device in lifetime.memory_mb for device in devices):
                return lifetime
        return None


def _permanent_share(kept_mb: Mapping[str, float]) -> str:
    """Says how much memory the permanent models take; empty if they take none. `kept_mb`: MB by the
    model's name."""
    if not kept_mb:
        return ""
    verb = "keeps" if len(kept_mb) == 1 else "keep"
    return f", of which {' and '.join(kept_mb)} {verb} {sum(kept_mb.values()):.0f}"
