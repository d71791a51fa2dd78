"""Arbitration of wake words between connected devices of every kind.

A door reports each wake word that one of its devices detected, and gets the decision: exactly one
device of a room answers. The door tells its device in the device's own protocol.
"""

import asyncio
import logging
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from core.audio import Pcm
from core.ports import Clock
from devices.fleet.arbitration import Arbitration, ArbitrationVerdict, WakeLevel
from devices.fleet.sound_level import SoundLevelMeter
from devices.fleet.wake_claims import WakeClaims

logger = logging.getLogger(__name__)

NO_ROOM = ""
"Devices without a room form one group."

FIRST_AUDIO_MS = 120
"""Sound after the wake word that is measured for a device without a level. With the way to the
device it fits into the 200 ms of a decision."""

MAX_MISSED = 2
"""Wake words of its room that a device which is not connected may miss. Then it is switched off, or
too slow, and the others wait no longer for it."""


class WakeContender(Protocol):
    """A connected device that detects wake words, as the arbitration sees it."""

    @property
    def contender_id(self) -> str:
        """The directory's id of the device; a longer id if the device has several microphones."""
        ...

    @property
    def contender_area(self) -> str:
        """The room it stands in; empty: not set."""
        ...

    @property
    def connects_when_woken(self) -> bool:
        """True if the device is not connected before it detects a wake word."""
        ...

    def listens_for(self, wake_word: str) -> bool:
        """Returns True if the device would report this wake word now. wake_word: as
        `plain_wake_word` returns it."""
        ...


@dataclass(slots=True, eq=False)
class ReportedWakeWord:
    """One reported wake word."""

    at: float
    "Monotonic seconds of the report."
    group: str
    room: str
    level: WakeLevel | None
    "Level at which the device received the wake word; None: not known, or not yet."
    on_decided: Callable[[bool], None]
    "Called with the decision, unless a newer report of the device has made this one void."
    meter: SoundLevelMeter | None
    "Measures the sound after it; None: its level is known."
    decided: asyncio.Future[bool] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    "True: the device answers."

    async def is_won(self) -> bool:
        """Waits for the decision and returns it: at most 200 ms, and up to a second more where the
        servers of other machines are asked."""
        return await asyncio.shield(self.decided)

    def decide(self, won: bool) -> None:
        """Delivers the decision. Does nothing if there is one already."""
        if not self.decided.done():
            self.decided.set_result(won)
            self.on_decided(won)


@dataclass(slots=True)
class _AbsentDevice:
    """A device that connects when it is woken, and is not connected."""

    group: str
    missed: int = 0
    "Number of the last wake words of its group that it did not report in time."


def _ignore(_: bool) -> None:
    """The door waits for the decision itself."""


class WakeArbiter:
    """Decides which device of a group answers a wake word.

    `run` must be running: it decides when not all devices have reported.
    groups: areas in which devices detect the same wake word, each a tuple; every other area is a
        group.
    claims: whether a winner may answer, where other servers may answer, too.
    """

    def __init__(
        self,
        clock: Clock,
        groups: Iterable[tuple[str, ...]] = (),
        claims: WakeClaims | None = None,
    ) -> None:
        self._clock = clock
        self._claims = claims or WakeClaims()
        self._claims.areas = self._rooms
        self._tasks: asyncio.TaskGroup | None = None
        "Claims that wait for an answer; None: `run` is not running."
        self._room_by_area: Mapping[str, str] = {
            _plain_area(area): _plain_area(areas[0]) for areas in groups for area in areas
        }
        self._arbitration = Arbitration()
        self._contenders: dict[str, WakeContender] = {}
        self._latest: dict[str, ReportedWakeWord] = {}
        "Latest wake word by contender."
        self._absent: dict[str, _AbsentDevice] = {}
        self._contests_changed = asyncio.Event()

    async def run(self) -> None:
        """Decides contests whose window is over, until cancelled."""
        try:
            async with asyncio.TaskGroup() as self._tasks:
                await self._decide_due()
        finally:
            self._tasks = None

    async def _decide_due(self) -> None:
        while True:
            due = self._arbitration.due()
            wait_s = None if due is None else max(0.0, due - self._clock.now())
            try:
                async with asyncio.timeout(wait_s):
                    await self._contests_changed.wait()
            except TimeoutError:
                self._deliver(self._arbitration.tick(self._clock.now()))
            self._contests_changed.clear()

    @contextmanager
    def connected(self, contender: WakeContender, *, only_wakes: bool = False) -> Iterator[None]:
        """Counts the device as connected while the `with` block runs; the newer of two connections
        counts. only_wakes: True: the command after the wake word comes over another connection."""
        contender_id = contender.contender_id
        self._contenders[contender_id] = contender
        try:
            yield
        finally:
            if self._contenders.get(contender_id) is contender:
                del self._contenders[contender_id]
                self._remove(contender_id, gives_up=not only_wakes)

    def report(
        self,
        contender: WakeContender,
        wake_word: str,
        level: WakeLevel | None = None,
        *,
        is_measured: bool = False,
        on_decided: Callable[[bool], None] = _ignore,
    ) -> ReportedWakeWord:
        """Records that a device detected a wake word.

        wake_word: its name or its words.
        level: None: not known.
        is_measured: True: the level is measured in the sound that follows, by `hear`.
        """
        contender_id, now = contender.contender_id, self._clock.now()
        last = self._latest.get(contender_id)
        group = self._group_of(contender, plain_wake_word(wake_word))
        meter = SoundLevelMeter(FIRST_AUDIO_MS) if is_measured else None
        room = self._room_of(contender)
        report = ReportedWakeWord(now, group, room, level, on_decided, meter)
        is_in_time = self._arbitration.is_open(group, now)
        verdicts = self._arbitration.report(
            group,
            contender_id,
            level,
            self._known(contender, plain_wake_word(wake_word), group),
            now,
            is_measuring=is_measured,
        )
        # this new wake word decides the device's former one
        if last is not None and not last.decided.done():
            verdicts = self._settle(verdicts, contender_id, last)
        self._latest[contender_id] = report
        self._deliver(verdicts)
        if contender.connects_when_woken:
            self._absent[contender_id] = _AbsentDevice(group, 0 if is_in_time else MAX_MISSED)
        self._contests_changed.set()
        return report

    def hear(self, contender: WakeContender, pcm: Pcm) -> None:
        """Takes the sound after a reported wake word, int16 at 16 kHz. After the decision it has no
        effect."""
        report = self._latest.get(contender.contender_id)
        if report is None or report.meter is None or report.decided.done():
            return
        report.meter.push(pcm)
        level_dbfs = report.meter.level_dbfs
        if level_dbfs is not None:
            level = report.level = WakeLevel(level_dbfs, "first_audio")
            is_complete = report.meter.is_full
            self._deliver(
                self._arbitration.measure(
                    report.group, contender.contender_id, level, is_complete=is_complete
                )
            )

    def claim(self, contender: WakeContender, wake_word: str) -> None:
        """Records that a device detected the wake word in the middle of its conversation, which
        goes on: the others of its room stay silent."""
        group = self._group_of(contender, plain_wake_word(wake_word))
        self._deliver(self._arbitration.claim(group, contender.contender_id, self._clock.now()))

    def withdraw(self, contender: WakeContender) -> None:
        """Removes a device that disconnected, or is about to be moved to another room."""
        self._remove(contender.contender_id, gives_up=True)

    def _remove(self, contender_id: str, *, gives_up: bool) -> None:
        self._deliver(self._arbitration.remove(contender_id, gives_up=gives_up))
        report = self._latest.pop(contender_id, None)
        if report is not None and not report.decided.done():
            report.decided.set_result(False)

    def give_up(self, contender: WakeContender) -> None:
        """Ends the contest of a device whose speech broke off or never began: another may be woken
        at once."""
        self._arbitration.give_up(contender.contender_id)

    def forget(self, contender_id: str) -> None:
        """Drops the level statistics of a device that is no longer known."""
        self._arbitration.forget(contender_id)
        self._absent.pop(contender_id, None)

    def _settle(
        self, verdicts: list[ArbitrationVerdict], contender_id: str, latest: ReportedWakeWord
    ) -> list[ArbitrationVerdict]:
        own = next((verdict for verdict in verdicts if verdict.device == contender_id), None)
        latest.decided.set_result(own is not None and own.won)
        return [verdict for verdict in verdicts if verdict is not own]

    def _deliver(self, verdicts: list[ArbitrationVerdict]) -> None:
        self._count_missed(verdicts)
        for verdict in verdicts:
            report = self._latest.get(verdict.device)
            if report is None:
                continue
            if verdict.won and self._claims.is_shared and self._tasks is not None:
                self._tasks.create_task(self._claim(verdict.device, report), name="wake-claim")
            else:
                report.decide(verdict.won)
        winners = [verdict.device for verdict in verdicts if verdict.won]
        losers = [verdict.device for verdict in verdicts if not verdict.won]
        if losers:
            answers = f"; {', '.join(winners)} answers" if winners else ""
            logger.info("= wake word: %s does not answer%s", ", ".join(losers), answers)

    async def _claim(self, contender_id: str, report: ReportedWakeWord) -> None:
        """Asks whether a device that won here may answer, and delivers the decision."""
        report.decide(
            await self._claims.claim(report.room, report.group, contender_id, report.level)
        )

    def _count_missed(self, verdicts: list[ArbitrationVerdict]) -> None:
        """Notes which absent devices did not take part in a decision."""
        decided = {self._latest[one.device].group for one in verdicts if one.won}
        reported = {one.device for one in verdicts}
        for contender_id, absent in self._absent.items():
            if absent.group in decided and contender_id not in reported:
                absent.missed += 1

    def _known(self, contender: WakeContender, wake_word: str, group: str) -> set[str]:
        """Returns the ids of the devices of the group that would report this wake word."""
        connected = {
            other.contender_id
            for other in self._contenders.values()
            if self._group_of(other, wake_word) == group and other.listens_for(wake_word)
        }
        absent = {
            name
            for name, one in self._absent.items()
            if one.group == group and one.missed < MAX_MISSED and name not in self._contenders
        }
        return {contender.contender_id} | connected | absent

    def _group_of(self, contender: WakeContender, wake_word: str) -> str:
        """Returns the group: its areas and its wake word. Devices with different wake words do not
        compete."""
        return f"{wake_word} {self._room_of(contender)}"

    def _room_of(self, contender: WakeContender) -> str:
        area = _plain_area(contender.contender_area)
        return self._room_by_area.get(area, area)

    def _rooms(self) -> set[str]:
        """Returns the rooms of the connected devices."""
        return set(map(self._room_of, self._contenders.values()))


def plain_wake_word(wake_word: str) -> str:
    """Returns a wake word in one form, whether it is given by its name or by its words.

    Each protocol writes it in its own way: `hiesp` and `Hi,ESP`, `ok_nabu` and `Okay Nabu`.
    """
    folded = unicodedata.normalize("NFKC", wake_word).casefold()
    letters = "".join(letter for letter in folded if letter.isalnum())
    return f"ok{letters[4:]}" if letters.startswith("okay") else letters


def _plain_area(area: str) -> str:
    return " ".join(area.split()).casefold() or NO_ROOM
