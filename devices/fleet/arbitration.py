"""Decides which of several devices that detected the same wake word answers. Pure: `now` is given.

The levels that devices report are not comparable: one device stands in a corner, another has a
higher gain. So the mean level of each device is learnt. What counts is how much louder than usual a
device received the wake word.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

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


@dataclass(slots=True)
class _UsualLevel:
    """Mean level of one device."""

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
    levels: dict[str, float | None] = field(default_factory=dict)
    winner: str = ""
    "Name of the winner; empty: not decided yet."

    @property
    def is_decided(self) -> bool:
        return bool(self.winner)


class Arbitration:
    """Decides for each wake word which device of a group answers.

    Groups are independent of each other. Every contender gets exactly one verdict per wake word,
    and exactly one contender of a group wins. Example:

        verdicts = arbitration.report("kitchen", "dev_1", -20.0, {"dev_1", "dev_2"}, now)  # [] yet
        ...
        if (due := arbitration.due()) is not None and now >= due:
            verdicts = arbitration.tick(now)  # one winner, all others lose
    """

    def __init__(self) -> None:
        self._contests: dict[str, _WakeContest] = {}
        self._levels: dict[str, _UsualLevel] = {}

    def report(
        self, group: str, device: str, level_db: float | None, known: AbstractSet[str], now: float
    ) -> list[ArbitrationVerdict]:
        """Records that a device detected the wake word; returns the verdicts that follow, if any.

        level_db: the level that the device reported; None: it reports none.
        known: all devices of the group that could have detected it; `device` may be missing from
            it.
        """
        if level_db is not None:
            level_db = max(QUIETEST_DB, min(LOUDEST_DB, level_db))
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
        contest.levels[device] = level_db
        if contest.is_decided:
            self._learn(device, level_db)
            verdicts.append(ArbitrationVerdict(device, won=False))
        elif known <= contest.levels.keys():
            verdicts += self._decide(contest)
        return verdicts

    def remove(self, group: str, device: str, known: AbstractSet[str]) -> list[ArbitrationVerdict]:
        """Removes a device that disconnected, and returns the verdicts that follow.

        The others need not wait for it, and it cannot win any more. known: the devices that are
        left.
        """
        self.give_up(group, device)
        contest = self._contests.get(group)
        if contest is None or contest.is_decided:
            return []
        contest.levels.pop(device, None)
        if not contest.levels:
            del self._contests[group]
            return []
        return self._decide(contest) if known <= contest.levels.keys() else []

    def give_up(self, group: str, device: str) -> None:
        """Ends the contest because the winner will not send the command.

        The losers stopped listening, and no message can change that. A device that detects the wake
        word from now on begins a new contest.
        """
        contest = self._contests.get(group)
        if contest is not None and contest.winner == device:
            del self._contests[group]

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
        """Drops the mean level of a device that is no longer known."""
        self._levels.pop(device, None)

    def correction_db(self, device: str) -> float:
        """Returns how much louder than the others this device usually is, in dB; 0 while too little
        is known."""
        own = self._levels.get(device)
        if own is None or not own.count:
            return 0.0
        others = [level for name, level in self._levels.items() if name != device and level.count]
        if not others:
            return 0.0
        weight = sum(level.count for level in others)
        usual_db = sum(level.mean_db * level.count for level in others) / weight
        confidence = _confidence(own.count) * _confidence(weight)
        found = (own.mean_db - usual_db) * confidence
        return max(-MAX_CORRECTION_DB, min(MAX_CORRECTION_DB, found))

    def _undecided(self) -> Iterator[_WakeContest]:
        return (contest for contest in self._contests.values() if not contest.is_decided)

    def _decide(self, contest: _WakeContest) -> list[ArbitrationVerdict]:
        def rank(device: str) -> tuple[bool, float, str]:
            """Sorts the best first. A device without a level wins only among others without one;
            ties go by name."""
            level_db = contest.levels[device]
            if level_db is None:
                return True, 0.0, device
            return False, self.correction_db(device) - level_db, device

        winner, *losers = sorted(contest.levels, key=rank)
        contest.winner = winner
        for device, level_db in contest.levels.items():
            self._learn(device, level_db)
        return [
            ArbitrationVerdict(winner, won=True),
            *(ArbitrationVerdict(loser, won=False) for loser in losers),
        ]

    def _learn(self, device: str, level_db: float | None) -> None:
        if level_db is not None:
            self._levels.setdefault(device, _UsualLevel()).add(level_db)


def _confidence(wake_words: float) -> float:
    """Returns the weight, 0 to 1, of a mean over so many wake words."""
    return wake_words / (wake_words + SHRINKAGE_WAKE_WORDS)
