"""Notifications of one device: one is played at a time, the others wait for its `notify_done`."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from core.ports import Clock
from firmware_protocol.willow.messages import CancelNotify, Notify, ToDevice

MAX_WAITING = 8
"More would go on for minutes in a room where nobody listens any more."

PLAY_TIMEOUT_S = 30.0
"""For one repetition, and once more for the whole: a device that was restarted meanwhile never says
that it is done."""

MAX_REPEAT = 20

MessageSender = Callable[[ToDevice], None]


class NotificationIds:
    """Ids of notifications: WAS's are milliseconds since 1970, so a number is never used twice,
    not even after a restart. 1 is the firmware's own."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last = 1

    def new(self) -> int:
        now = int(self._clock.wall().timestamp() * 1000)
        self._last = max(now, self._last + 1)
        return self._last


@dataclass(frozen=True, slots=True)
class NotificationQueueStatus:
    """For `/api/status`."""

    active: int | None
    waiting: tuple[int, ...]


class NotificationQueue:
    """`run` plays them. `tell` sends to the device."""

    def __init__(self, numbers: NotificationIds) -> None:
        self._numbers = numbers
        self._waiting: deque[Notify] = deque()
        self._some = asyncio.Event()
        self._active: Notify | None = None
        self._done = asyncio.Event()

    @property
    def now(self) -> NotificationQueueStatus:
        active = self._active.id if self._active else None
        return NotificationQueueStatus(active, tuple(one.id for one in self._waiting))

    def new_id(self) -> int:
        return self._numbers.new()

    def add(self, message: Notify) -> bool:
        """False: too many wait already."""
        if len(self._waiting) >= MAX_WAITING:
            return False
        self._waiting.append(message)
        self._some.set()
        return True

    def done(self, number: int) -> bool:
        """`notify_done`. False: it was not being played."""
        if self._active is None or self._active.id != number:
            return False
        self._done.set()
        return True

    def cancel(self, number: int, tell: MessageSender) -> bool:
        """Also one that waits. False: it is not here. A device says when it stopped."""
        if self._active is not None and self._active.id == number:
            tell(CancelNotify(number))
            return True
        kept = [one for one in self._waiting if one.id != number]
        is_here = len(kept) < len(self._waiting)
        self._waiting = deque(kept)
        return is_here

    async def run(self, tell: MessageSender) -> None:
        while True:
            while not self._waiting:
                self._some.clear()
                await self._some.wait()
            self._active = message = self._waiting.popleft()
            self._done.clear()
            tell(message)
            try:
                async with asyncio.timeout(PLAY_TIMEOUT_S * (1 + (message.repeat or 1))):
                    await self._done.wait()
            except TimeoutError:
                tell(CancelNotify(message.id))
            self._active = None
