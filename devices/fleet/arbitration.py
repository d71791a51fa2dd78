"""Decides which of several devices that detected the same wake word answers. Pure: `now` is given.

The levels of devices are not comparable: one device stands in a corner, another has a higher gain,
and of a third only the sound after the wake word is known. So mean levels are learnt, of each
device and of each way to measure. What counts is how much louder than usual a device received the
wake word.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Literal

LevelSource = Literal["reported", "wake_word", "first_audio"]
"""Way in which a level was measured. reported: by the device. wake_word: by the server, in the
sound of the wake word. first_audio: by the server, in the first sound after the wake word."""

WINDOW_S = 0.2
"""Time in which reports of a wake word are collected, in seconds. Reports of the same wake word
arrive within 100 ms over Wi-Fi. Willow's own server (WAS) waits 400 ms; half of that is enough."""

LATE_S = 1.5
"""A report this long after the first of its group still belongs to the same wake word, over a slow
network. A wake word takes half a second to say, and a command follows it."""

SHRINKAGE_WAKE_WORDS = 4.0
"""Number of wake words after which a device's mean counts half. The mean of one wake word says
little."""

MAX_CORRECTION_DB = 12.0
"""Limit of the correction. A larger difference is not explained by place or gain: the microphone is
broken, or one person always speaks to this device only."""

QUIETEST_DB, LOUDEST_DB = -120.0, 20.0
"""Plausible range of any microphone: one wrong number must not spoil the mean for hundreds of wake
words."""

MEMORY_WAKE_WORDS = 50.0
"The mean adapts within about this many wake words, for instance after a device was moved."


@dataclass(frozen=True, slots=True)
class ArbitrationVerdict:
    """Decision about one contender. In a list of verdicts the winner comes first."""

    device: str
    won: bool


@dataclass(frozen=True, slots=True)
class WakeLevel:
    """Level at which a device received a wake word."""

    level_db: float
    source: LevelSource = "reported"


@dataclass(slots=True)
class _UsualLevel:
    """Mean level of one device, or of one way to measure."""

    mean_db: float = 0.0
    count: float = 0.0

    def add(self, level_db: float) -> None:
        """Adds a level to the mean; beyond MEMORY_WAKE_WORDS levels the mean is exponential."""
        self.count = min(self.count + 1, MEMORY_WAKE_WORDS)
        self.mean_db += (level_db - self.mean_db) / self.count


@dataclass(slots=True)
class _WakeContest:
    """One wake word in one group of devices, and the devices that reported it."""

    began_at: float
    levels: dict[str, WakeLevel | None] = field(default_factory=dict)
    "Level by device, in the order of the reports; None: it has none, or none yet."
    unmeasured: set[str] = field(default_factory=set)
    "Devices whose level is still being measured."
    known: frozenset[str] = frozenset()
    "Devices that may report the wake word."
    winner: str = ""
    "Name of the winner; empty: not decided yet."

    @property
    def is_decided(self) -> bool:
        return bool(self.winner)

    @property
    def is_complete(self) -> bool:
        """True if nothing more is awaited. A level decides nothing for the only device."""
        is_alone = len(self.levels) == 1
        return self.known <= self.levels.keys() and (is_alone or not self.unmeasured)


class Arbitration:
    """Decides for each wake word which device of a group answers.

    Groups are independent of each other. Every contender gets exactly one verdict per wake word,
    and exactly one contender of a group wins. Example:

        known = {"dev_1", "dev_2"}
        verdicts = arbitration.report("kitchen", "dev_1", WakeLevel(-20), known, now)  # [] yet
        ...
        if (due := arbitration.due()) is not None and now >= due:
            verdicts = arbitration.tick(now)  # one winner, all others lose
    """

    def __init__(self) -> None:
        self._contests: dict[str, _WakeContest] = {}
        self._levels: dict[tuple[str, LevelSource], _UsualLevel] = {}
        self._source_levels: dict[LevelSource, _UsualLevel] = {}

    def report(
        self,
        group: str,
        device: str,
        level: WakeLevel | None,
        known: AbstractSet[str],
        now: float,
        *,
        is_measuring: bool = False,
    ) -> list[ArbitrationVerdict]:
        """Records that a device detected the wake word; returns the verdicts that follow, if any.

        level: None: it has none, or none yet.
        known: all devices of the group that could have detected it; `device` may be missing from
            it.
        is_measuring: True: its level follows, by `measure`.
        """
        verdicts: list[ArbitrationVerdict] = []
        contest = self._contests.get(group)
        # a device reports the same wake word only once
        is_old = contest is not None and device in contest.levels
        if (
            contest is not None
            and not contest.is_decided
            and (is_old or now >= contest.began_at + WINDOW_S)
        ):
            verdicts += self._decide(contest)
        if contest is None or is_old or now >= contest.began_at + LATE_S:
            contest = self._contests[group] = _WakeContest(now)
        level = _plausible(level)
        contest.levels[device], contest.known = level, frozenset(known)
        if contest.is_decided:
            self._learn(device, level)
            verdicts.append(ArbitrationVerdict(device, won=False))
            return verdicts
        if is_measuring:
            contest.unmeasured.add(device)
        return verdicts + self._decide_complete(contest)

    def measure(
        self, group: str, device: str, level: WakeLevel, *, is_complete: bool
    ) -> list[ArbitrationVerdict]:
        """Sets the level of a device that has reported, as far as it is measured; returns the
        verdicts that follow. After the decision it has no effect."""
        contest = self._contests.get(group)
        if contest is None or contest.is_decided or device not in contest.unmeasured:
            return []
        contest.levels[device] = _plausible(level)
        if is_complete:
            contest.unmeasured.remove(device)
        return self._decide_complete(contest)

    def claim(self, group: str, device: str, now: float) -> list[ArbitrationVerdict]:
        """Records that a device detected the wake word in the middle of its conversation, which
        goes on whatever the others report: they lose. Returns the verdicts about what was
        reported."""
        verdicts: list[ArbitrationVerdict] = []
        contest = self._contests.get(group)
        if contest is not None and not contest.is_decided and now >= contest.began_at + WINDOW_S:
            verdicts += self._decide(contest)
        if contest is None or now >= contest.began_at + LATE_S:
            contest = self._contests[group] = _WakeContest(now)
        if contest.is_decided:
            return verdicts
        verdicts += [ArbitrationVerdict(one, won=one == device) for one in contest.levels]
        contest.levels[device], contest.winner = None, device
        return verdicts

    def remove(self, device: str, *, gives_up: bool = True) -> list[ArbitrationVerdict]:
        """Removes a device that disconnected or moved, and returns the verdicts that follow.

        The others need not wait for it, and it cannot win any more. gives_up: False: if it has won,
        the command comes over another connection.
        """
        if gives_up:
            self.give_up(device)
        verdicts: list[ArbitrationVerdict] = []
        for group, contest in [*self._contests.items()]:
            if contest.is_decided:
                continue
            contest.levels.pop(device, None)
            contest.unmeasured.discard(device)
            contest.known -= {device}
            if contest.levels:
                verdicts += self._decide_complete(contest)
            else:
                del self._contests[group]
        return verdicts

    def give_up(self, device: str) -> None:
        """Ends the contest because the winner will not send the command.

        The losers stopped listening, and no message can change that. A device that detects the wake
        word from now on begins a new contest.
        """
        for group in [name for name, one in self._contests.items() if one.winner == device]:
            del self._contests[group]

    def is_open(self, group: str, now: float) -> bool:
        """Returns True if a device that reports now is in time: there is no contest, or its window
        is not over, though it may be decided already."""
        contest = self._contests.get(group)
        is_new = contest is None or now >= contest.began_at + LATE_S
        return is_new or (contest is not None and now < contest.began_at + WINDOW_S)

    def due(self) -> float | None:
        """Returns the time at which `tick` has something to decide; None: nothing waits."""
        return min((contest.began_at + WINDOW_S for contest in self._undecided()), default=None)

    def tick(self, now: float) -> list[ArbitrationVerdict]:
        """Decides contests whose window is over, and removes old ones."""
        due_contests = [
            contest for contest in self._undecided() if now >= contest.began_at + WINDOW_S
        ]
        verdicts = [verdict for contest in due_contests for verdict in self._decide(contest)]
        expired = [
            name for name, contest in self._contests.items() if now >= contest.began_at + LATE_S
        ]
        for name in expired:
            del self._contests[name]
        return verdicts

    def forget(self, device: str) -> None:
        """Drops the mean levels of a device that is no longer known."""
        for key in [key for key in self._levels if key[0] == device]:
            del self._levels[key]

    def correction_db(self, device: str, source: LevelSource = "reported") -> float:
        """Returns how much louder this device usually is than the others that are measured in the
        same way, in dB; 0 while too little is known."""
        own = self._levels.get((device, source))
        if own is None or not own.count:
            return 0.0
        others = [
            level
            for (name, other_source), level in self._levels.items()
            if name != device and other_source == source and level.count
        ]
        if not others:
            return 0.0
        weight = sum(level.count for level in others)
        usual_db = sum(level.mean_db * level.count for level in others) / weight
        confidence = _confidence(own.count) * _confidence(weight)
        found = (own.mean_db - usual_db) * confidence
        return max(-MAX_CORRECTION_DB, min(MAX_CORRECTION_DB, found))

    def _undecided(self) -> Iterator[_WakeContest]:
        return (contest for contest in self._contests.values() if not contest.is_decided)

    def _decide_complete(self, contest: _WakeContest) -> list[ArbitrationVerdict]:
        return self._decide(contest) if contest.is_complete else []

    def _decide(self, contest: _WakeContest) -> list[ArbitrationVerdict]:
        def rank(device: str) -> tuple[bool, float]:
            """Sorts the best first. A device without a level wins only among others without one;
            of equal ones the first that reported wins."""
            level = contest.levels[device]
            if level is None:
                return True, 0.0
            usual_db = self._usual_db(level.source, contest)
            correction_db = self.correction_db(device, level.source)
            return False, usual_db + correction_db - level.level_db

        winner, *losers = sorted(contest.levels, key=rank)
        contest.winner = winner
        for device, level in contest.levels.items():
            self._learn(device, level)
        return [
            ArbitrationVerdict(winner, won=True),
            *(ArbitrationVerdict(loser, won=False) for loser in losers),
        ]

    def _usual_db(self, source: LevelSource, contest: _WakeContest) -> float:
        """Returns the mean of the levels that are measured in this way: the sound after a wake word
        may be 30 dB below that of the wake word. Before the first ones, it is the mean of those in
        the contest."""
        if (usual := self._source_levels.get(source)) is not None:
            return usual.mean_db
        levels = contest.levels.values()
        found = [level.level_db for level in levels if level and level.source == source]
        return sum(found) / len(found)

    def _learn(self, device: str, level: WakeLevel | None) -> None:
        if level is not None:
            source = level.source
            self._levels.setdefault((device, source), _UsualLevel()).add(level.level_db)
            self._source_levels.setdefault(source, _UsualLevel()).add(level.level_db)


def _plausible(level: WakeLevel | None) -> WakeLevel | None:
    if level is None:
        return None
    return WakeLevel(max(QUIETEST_DB, min(LOUDEST_DB, level.level_db)), level.source)


def _confidence(wake_words: float) -> float:
    """Returns the weight, 0 to 1, of a mean over so many wake words."""
    return wake_words / (wake_words + SHRINKAGE_WAKE_WORDS)
