"""Notifications of one device: one is played at a time, the others wait for its `notify_done`."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from core.ports import Clock
from firmware_protocol.willow.messages import CancelNotify, Notify, ToDevice

MAX_WAITING = 8
"Limit of waiting notifications: more would play for minutes after the user stopped listening."

PLAY_TIMEOUT_S = 30.0
"""Longest wait for `notify_done`, in seconds, for each repetition and once more. A device that was
restarted meanwhile never sends it."""

MAX_REPEAT = 20
"Limit of repetitions of one notification."

MessageSender = Callable[[ToDevice], None]
"Function that queues a message for the device."


class NotificationIds:
    """Source of notification ids. As in WAS they are milliseconds since 1970, so that an id is
    never used twice, not even after a restart. Id 1 is reserved by the firmware."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_id = 1

    def new(self) -> int:
        now = int(self._clock.wall().timestamp() * 1000)
        self._last_id = max(now, self._last_id + 1)
        return self._last_id


@dataclass(frozen=True, slots=True)
class NotificationQueueStatus:
    """State of the queue, for `/api/status`."""

    active: int | None
    waiting: tuple[int, ...]


class NotificationQueue:
    """Queue of notifications; `run` plays them."""

    def __init__(self, notification_ids: NotificationIds) -> None:
        self._notification_ids = notification_ids
        self._waiting: deque[Notify] = deque()
        self._is_not_empty = asyncio.Event()
        self._active: Notify | None = None
        self._done = asyncio.Event()

    @property
    def status(self) -> NotificationQueueStatus:
        """The notification that is played and those that wait."""
        active = self._active.id if self._active else None
        return NotificationQueueStatus(active, tuple(message.id for message in self._waiting))

    def new_id(self) -> int:
        return self._notification_ids.new()

    def add(self, message: Notify) -> bool:
        """Queues a notification. Returns False when too many wait."""
        if len(self._waiting) >= MAX_WAITING:
            return False
        self._waiting.append(message)
        self._is_not_empty.set()
        return True

    def done(self, number: int) -> bool:
        """Handles `notify_done`. Returns False if this notification was not being played."""
        if self._active is None or self._active.id != number:
            return False
        self._done.set()
        return True

    def cancel(self, number: int, send: MessageSender) -> bool:
        """Cancels a notification, also one that waits. Returns False if it is not here.

        The device itself reports when it stopped playing.
        """
        if self._active is not None and self._active.id == number:
            send(CancelNotify(number))
            return True
        kept = [message for message in self._waiting if message.id != number]
        is_here = len(kept) < len(self._waiting)
        self._waiting = deque(kept)
        return is_here

    async def run(self, send: MessageSender) -> None:
        """Plays notifications one after the other until cancelled."""
        while True:
            while not self._waiting:
                self._is_not_empty.clear()
                await self._is_not_empty.wait()
            self._active = message = self._waiting.popleft()
            self._done.clear()
            send(message)
            try:
                async with asyncio.timeout(PLAY_TIMEOUT_S * (1 + (message.repeat or 1))):
                    await self._done.wait()
            except TimeoutError:
                send(CancelNotify(message.id))
            self._active = None
