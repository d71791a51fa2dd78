"""How many answers a server begins before their turns are over, and what they leave to the others.

A language model has so many seats. Answers that somebody waits for go before drafts: none is begun
on the last free seat, and where all are taken the oldest draft gives up its own.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from engines.base import ConcurrencyLimitedLlm, Llm

MAX_LIVE = 8
"""Drafts of a whole server. More at once mean that many people pause at once: then the turns that
are over need the engines."""

MAX_GENERATIONS = 2 * MAX_LIVE
"""Answers that a language model writes at once, drafts among them, if it does not say how many it
can: what comes on top would wait behind drafts in its own queue."""

CLOSED_WITHIN_S = 2.0
"A model that does not stop by then is left to refuse the next, which else would wait in silence."


@dataclass(slots=True, eq=False)
class SlotHolder:
    """An answer's claim to a seat, for as long as the answer is made."""

    give_up: Callable[[], None] | None = None
    "Ends it in favour of others, and sets `is_over`; None: somebody waits for it."
    is_over: bool = False
    "It is cancelled: the seat it may have gets free as soon as the model was told."


class LlmSlots:
    """Who has one language model write. A round of an answer takes a seat, not the whole answer."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._taken: list[SlotHolder] = []
        "The oldest first."
        self._waiting = 0
        "Of those that somebody waits for."
        self._changed = asyncio.Event()

    @property
    def is_free_for_draft(self) -> bool:
        """One would be left for who waits for his answer, when those that are over have gone."""
        staying = sum(not claim.is_over for claim in self._taken)
        return staying + self._waiting < self._at_once - 1

    def adopt(self, claim: SlotHolder) -> None:
        """Somebody waits for this draft from here on."""
        claim.give_up = None
        self._wake()

    @asynccontextmanager
    async def take(self, claim: SlotHolder) -> AsyncIterator[None]:
        """A seat while the body runs. A claim that somebody waits for ends a draft if it must, and
        has its seat once that is closed. With nothing but such claims it is the model's to refuse
        one. A draft waits until one more is free, or it is adopted."""
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
        """Whether a seat is being left; if those are too few for all who wait, a draft's is."""
        ending = sum(claim.is_over for claim in self._taken)
        drafts = [c for c in self._taken if c.give_up is not None and not c.is_over]
        if drafts and len(self._taken) - ending + self._waiting > self._at_once:
            assert drafts[0].give_up is not None
            drafts[0].give_up()
            ending += 1
        return ending > 0


@dataclass(slots=True)
class DraftBudget:
    """Shared by all sessions."""

    limit: int = MAX_LIVE
    "0: no answer is begun before its turn is over."
    live: int = 0
    _seats: list[tuple[Llm, LlmSlots]] = field(
        default_factory=list[tuple[Llm, LlmSlots]], repr=False
    )
    "Of the few models of a server; told apart by identity."

    def seats(self, llm: Llm) -> LlmSlots:
        """Those of one language model."""
        for known, seats in self._seats:
            if known is llm:
                return seats
        told = llm.at_once if isinstance(llm, ConcurrencyLimitedLlm) else None
        seats = LlmSlots(max(MAX_GENERATIONS, 2 * self.limit) if told is None else told)
        self._seats.append((llm, seats))
        return seats
