"""Slots of the language models: limit how many requests each model gets at once, and how many
drafts exist.

A draft is an answer that is begun before the user's turn is certainly over. Answers that a user
waits for have priority: no draft takes the last free slot, and when all slots are taken the oldest
draft is cancelled.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from engines.base import ConcurrencyLimitedLlm, Llm

MAX_DRAFTS = 8
"""Largest number of drafts on the whole server. More drafts mean that many people pause at once;
then the turns that are over need the engines."""

DEFAULT_SLOTS = 2 * MAX_DRAFTS
"""Slots of a language model that does not say how many answers it can write at once; drafts count.
Further requests would wait behind drafts in the model's own queue."""

SLOT_WAIT_S = 2.0
"""Longest wait for a slot to be freed. After that the request is sent anyway, so that the model
refuses it instead of the user waiting in silence."""


@dataclass(slots=True, eq=False)
class SlotHolder:
    """One answer that takes slots, for as long as it is made."""

    give_up: Callable[[], None] | None = None
    """Cancels the answer in favour of others, and sets `is_over`. None: a user waits for this
    answer."""
    is_over: bool = False
    """True: the answer was cancelled. Its slot becomes free as soon as the request to the model is
    closed."""


class LlmSlots:
    """Slots of one language model. Each request to the model takes a slot; an answer that
    calls tools makes several requests, one after the other.

    Example:
        holder = SlotHolder()           # give_up is None: a user waits for this answer
        async with slots.take(holder):
            ...                         # one request to the language model
    """

    def __init__(self, max_requests: int) -> None:
        """Creates the slots. `max_requests`: number of requests that the model may get at once."""
        self.max_requests = max_requests
        self._holders: list[SlotHolder] = []
        "Answers that have a slot, the oldest first."
        self._waiting = 0
        "Number of requests that wait for a slot, not counting drafts."
        self._changed = asyncio.Event()

    @property
    def taken(self) -> int:
        """Number of requests that have a slot. It may exceed `max_requests`: see SLOT_WAIT_S."""
        return len(self._holders)

    @property
    def is_free_for_draft(self) -> bool:
        """True if a draft may begin: at least one slot remains free for an answer that a user waits
        for. Cancelled answers count as gone."""
        staying = sum(not holder.is_over for holder in self._holders)
        return staying + self._waiting < self.max_requests - 1

    def adopt(self, holder: SlotHolder) -> None:
        """Notes that a user waits for this draft from now on."""
        holder.give_up = None
        self._wake()

    @asynccontextmanager
    async def take(self, holder: SlotHolder) -> AsyncIterator[None]:
        """Holds a slot while the body runs.

        An answer that a user waits for cancels a draft if necessary, and gets the slot once the
        draft's request is closed. If such answers hold all slots, the request is sent all the same,
        and the model may refuse it. A draft waits until one slot more than it needs is free, or
        until it is adopted."""
        while holder.give_up is not None and not self._has_spare:
            await self._changed.wait()
        if holder.give_up is None:
            await self._wait_for_slot()
        self._holders.append(holder)
        try:
            yield
        finally:
            self._holders.remove(holder)
            self._wake()

    @asynccontextmanager
    async def take_behind(self, give_up: Callable[[], None]) -> AsyncIterator[None]:
        """Holds a slot for work that nobody listens to: spoken turns go first.

        Waits until one slot more than it needs is free, or until the model is idle. `give_up`:
        cancels the work. It is called when a spoken turn needs the slot, as for a draft.
        """
        while self._holders and not self._has_spare:
            await self._changed.wait()
        holder = SlotHolder()

        def end() -> None:
            holder.is_over = True
            give_up()

        holder.give_up = end
        self._holders.append(holder)
        try:
            yield
        finally:
            self._holders.remove(holder)
            self._wake()

    @property
    def _has_spare(self) -> bool:
        """True if a draft may send a request now: one slot stays free. Unlike `is_free_for_draft`,
        cancelled answers count, because they hold their slot until their request is closed."""
        return len(self._holders) + self._waiting < self.max_requests - 1

    def _wake(self) -> None:
        # a new event each time: it wakes all tasks that wait now, and none that waits later
        self._changed.set()
        self._changed = asyncio.Event()

    async def _wait_for_slot(self) -> None:
        self._waiting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(SLOT_WAIT_S):
                    while len(self._holders) >= self.max_requests and self._free_slot():
                        await self._changed.wait()
        finally:
            self._waiting -= 1

    def _free_slot(self) -> bool:
        """Cancels the oldest draft, unless enough slots are being freed for all requests that wait.
        Returns True if a slot is about to become free."""
        ending = sum(holder.is_over for holder in self._holders)
        drafts = [
            holder for holder in self._holders if holder.give_up is not None and not holder.is_over
        ]
        if drafts and len(self._holders) - ending + self._waiting > self.max_requests:
            assert drafts[0].give_up is not None
            drafts[0].give_up()
            ending += 1
        return ending > 0


@dataclass(slots=True)
class DraftBudget:
    """Limits of drafts and of language model slots, shared by all sessions."""

    limit: int = MAX_DRAFTS
    "Largest number of drafts at once; 0: no answer is begun before its turn is over."
    count: int = 0
    "Number of drafts that exist now."
    _slots: list[tuple[Llm, LlmSlots]] = field(
        default_factory=list[tuple[Llm, LlmSlots]], repr=False
    )
    """Slots of each language model. A list, searched with `is`, because a model need not be
    hashable."""

    def slots(self, llm: Llm) -> LlmSlots:
        """Returns the slots of one language model."""
        for known, slots in self._slots:
            if known is llm:
                return slots
        own_limit = llm.max_concurrency if isinstance(llm, ConcurrencyLimitedLlm) else None
        default = max(DEFAULT_SLOTS, 2 * self.limit)
        slots = LlmSlots(default if own_limit is None else own_limit)
        self._slots.append((llm, slots))
        return slots
