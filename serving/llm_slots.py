"""Slots of the language models: limits how many requests each gets at once, and how many drafts
exist.

A draft is an answer that is begun before the user's turn is certainly over. Answers that a user
waits for have priority: no draft takes the last free slot, and when all slots are taken the oldest
draft gives up its own.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from engines.base import ConcurrencyLimitedLlm, Llm

MAX_LIVE = 8
"""Largest number of drafts on the whole server. More drafts mean that many people pause at once;
then the turns that are over need the engines."""

MAX_GENERATIONS = 2 * MAX_LIVE
"""Slots of a language model that does not say how many answers it can write at once; drafts count.
Further requests would wait behind drafts in the model's own queue."""

CLOSED_WITHIN_S = 2.0
"""Longest wait for a slot to be freed. After that the request is sent anyway, so that the model
refuses it instead of the user waiting in silence."""


@dataclass(slots=True, eq=False)
class SlotHolder:
    """An answer's claim to a slot, for as long as the answer is made."""

    give_up: Callable[[], None] | None = None
    """Cancels the answer in favour of others, and sets `is_over`. None: a user waits for this
    answer."""
    is_over: bool = False
    """True: the answer was cancelled. Its slot becomes free as soon as the request to the model is
    closed."""


class LlmSlots:
    """Slots of one language model. A round of an answer takes a slot, not the whole answer.

    Example:
        holder = SlotHolder()           # give_up is None: a user waits for this answer
        async with slots.take(holder):
            ...                         # one request to the language model
    """

    def __init__(self, at_once: int) -> None:
        """Creates the slots. `at_once`: number of requests that the model may get at once."""
        self._at_once = at_once
        self._taken: list[SlotHolder] = []
        "Claims that have a slot, the oldest first."
        self._waiting = 0
        "Number of requests that wait for a slot, not counting drafts."
        self._changed = asyncio.Event()

    @property
    def is_free_for_draft(self) -> bool:
        """True if a draft may begin: at least one slot remains free for an answer that a user waits
        for. Cancelled answers count as gone."""
        staying = sum(not claim.is_over for claim in self._taken)
        return staying + self._waiting < self._at_once - 1

    def adopt(self, claim: SlotHolder) -> None:
        """Notes that a user waits for this draft from now on."""
        claim.give_up = None
        self._wake()

    @asynccontextmanager
    async def take(self, claim: SlotHolder) -> AsyncIterator[None]:
        """Holds a slot while the body runs.

        A claim that a user waits for cancels a draft if necessary, and gets its slot once that is
        closed. If all slots are held by such claims, the request is sent all the same and the model
        may refuse it. A draft waits until one slot more than it needs is free, or until it is
        adopted.
        """
        while claim.give_up is not None and not self._has_spare:
            await self._changed.wait()
        if claim.give_up is None:
            await self._make_room()
        self._taken.append(claim)
        try:
            yield
        finally:
            self._taken.remove(claim)
            self._wake()

    @property
    def _has_spare(self) -> bool:
        return len(self._taken) + self._waiting < self._at_once - 1

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _make_room(self) -> None:
        self._waiting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSED_WITHIN_S):
                    while len(self._taken) >= self._at_once and self._gets_free():
                        await self._changed.wait()
        finally:
            self._waiting -= 1

    def _gets_free(self) -> bool:
        """True if a slot is about to become free. Cancels the oldest draft if those are too few for
        all claims that wait."""
        ending = sum(claim.is_over for claim in self._taken)
        drafts = [c for c in self._taken if c.give_up is not None and not c.is_over]
        # Slots that are being freed may be enough for all requests that wait.
        if drafts and len(self._taken) - ending + self._waiting > self._at_once:
            assert drafts[0].give_up is not None
            drafts[0].give_up()
            ending += 1
        return ending > 0


@dataclass(slots=True)
class DraftBudget:
    """Limits of drafts and of language model slots, shared by all sessions."""

    limit: int = MAX_LIVE
    "Largest number of drafts at once; 0: no answer is begun before its turn is over."
    live: int = 0
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
        told = llm.at_once if isinstance(llm, ConcurrencyLimitedLlm) else None
        slots = LlmSlots(max(MAX_GENERATIONS, 2 * self.limit) if told is None else told)
        self._slots.append((llm, slots))
        return slots
