"""Wake words in rooms whose devices are connected to servers of several machines: at most one
server answers.

Each server first chooses among its own devices. Then it asks the owner of the room, one of the
servers (`MachineTable.room_owner`), which chooses the loudest by the same rules
(`devices.fleet.arbitration`) and writes the winner into the database. A server that does not reach
the owner writes into the database itself: only one of all succeeds. While the database is away, the
owner decides alone.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic

import aiohttp

from core.errors import StorageError
from devices.fleet.arbitration import LATE_S, Arbitration, ArbitrationVerdict
from devices.fleet.wake_claims import WakeClaim
from devices.registry.machines import MachineRegistry, MachineRow
from server.machines.table import MachineTable

logger = logging.getLogger(__name__)

OWNER_LIMIT_S = 0.6
"""Longest wait for the owner of a room, in seconds: it collects claims for 0.2 s, and waits
DATABASE_LIMIT_S for the database. The device records meanwhile, so nothing of the command is
lost."""

DATABASE_LIMIT_S = 0.3
"Longest wait for the database, in seconds. It takes some milliseconds if it is there."

AskOwner = Callable[[MachineRow, WakeClaim], Awaitable[bool]]
"""Sends a claim to another server and returns its answer. Raises aiohttp.ClientError, OSError or
StorageError."""


class RoomClaims:
    """Decides claims of this server, and those of others about rooms that this one owns."""

    def __init__(
        self,
        table: MachineTable,
        registry: MachineRegistry,
        ask_owner: AskOwner,
        own_rooms: Callable[[], frozenset[str]],
    ) -> None:
        """`own_rooms`: returns the rooms that have devices here."""
        self._table, self._registry = table, registry
        self._ask_owner, self._own_rooms = ask_owner, own_rooms
        self._arbitration = Arbitration()
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        "Claims that wait for their verdict, by the name of their contender."

    async def ask(self, claim: WakeClaim) -> bool:
        """Returns whether the device of this server may answer. Raises nothing but
        cancellation."""
        owner = self._table.room_owner(claim.room)
        if owner is None:
            return await self.decide(claim, self._table.own_number)
        try:
            async with asyncio.timeout(OWNER_LIMIT_S):
                return await self._ask_owner(owner, claim)
        except (aiohttp.ClientError, OSError, StorageError):  # TimeoutError is an OSError
            logger.warning("! machines: %d, which decides about a room, is away", owner.number)
            return await self._write(claim)

    async def decide(self, claim: WakeClaim, machine: int) -> bool:
        """Returns whether the device of a machine may answer: it is the loudest of those that
        claimed the room within 0.2 s, and no other has answered. For the owner of the room."""
        contender = _contender(machine, claim.contest)
        machines = self._table.machines_in(claim.room) | {machine}
        if claim.room in self._own_rooms():
            machines |= {self._table.own_number}
        known = {_contender(number, claim.contest) for number in machines}
        verdicts = self._arbitration.report(
            claim.contest, contender, claim.level, known, monotonic()
        )
        former = self._waiting.get(contender)
        if former is not None and not former.done():  # the machine's former wake word
            mine = next((one for one in verdicts if one.device == contender), None)
            former.set_result(mine is not None and mine.won)
            verdicts = [one for one in verdicts if one is not mine]
        verdict = self._waiting[contender] = asyncio.get_running_loop().create_future()
        self._settle(verdicts)
        try:
            await self._until_decided(verdict)
        finally:
            if self._waiting.get(contender) is verdict:
                del self._waiting[contender]
        return verdict.result() and await self._write(claim)

    async def _until_decided(self, verdict: asyncio.Future[bool]) -> None:
        while not verdict.done():
            due = self._arbitration.due()
            wait_s = 0.0 if due is None else max(0.0, due - monotonic())
            await asyncio.wait([verdict], timeout=wait_s)
            self._settle(self._arbitration.tick(monotonic()))

    def _settle(self, verdicts: Sequence[ArbitrationVerdict]) -> None:
        for one in verdicts:
            waiting = self._waiting.get(one.device)
            if waiting is not None and not waiting.done():
                waiting.set_result(one.won)

    async def _write(self, claim: WakeClaim) -> bool:
        """Writes the winner into the database. Returns False if another device has answered. True
        while the database is away: better two answers than none."""
        try:
            async with asyncio.timeout(DATABASE_LIMIT_S):
                return await self._registry.claim_wake(claim.contest, claim.device_id, LATE_S)
        except (StorageError, TimeoutError):
            return True


def _contender(machine: int, contest: str) -> str:
    return f"{machine} {contest}"
