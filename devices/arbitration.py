"""Which of several devices that heard the same wake word answers. Pure: `now` is given.

The levels that devices tell are not comparable: one stands in a corner, another has its gain turned
up. So each device's own mean is learnt, and what counts is how much louder than usual it heard.
"""

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

WINDOW_S = 0.2
"Wake words of one moment reach us within 100 ms over Wi-Fi; half of WAS's 400 ms is enough."

LATE_S = 1.5
"""After the first of a group: whoever comes now heard the same wake word over a slow network. A
wake word takes half a second to say, and a command follows it."""

CAUTION = 4.0
"A mean of so many wake words is believed by half: one of a single wake word says little."

MAX_CORRECTION_DB = 12.0
"More is not a place or a gain: it is a broken microphone, or somebody who only speaks to that one."

QUIETEST_DB, LOUDEST_DB = -120.0, 20.0
"Of any microphone: one wrong number must not spoil the means for hundreds of wake words."

MEMORY = 50.0
"The mean follows a device that was moved within so many wake words."


@dataclass(frozen=True, slots=True)
class ArbitrationVerdict:
    """One contender's. The winner's comes first."""

    device: str
    won: bool


@dataclass(slots=True)
class _UsualLevel:
    """A device's mean level."""

    mean_db: float = 0.0
    count: float = 0.0

    def add(self, level_db: float) -> None:
        self.count = min(self.count + 1, MEMORY)
        self.mean_db += (level_db - self.mean_db) / self.count


@dataclass(slots=True)
class _WakeContest:
    """One wake word in one group."""

    began: float
    levels: dict[str, float | None] = field(default_factory=dict)
    winner: str = ""
    "Empty: not decided yet."

    @property
    def is_decided(self) -> bool:
        return bool(self.winner)


class Arbitration:
    """Groups are independent of each other. Every contender gets exactly one verdict per wake word,
    and exactly one contender of a group wins."""

    def __init__(self) -> None:
        self._races: dict[str, _WakeContest] = {}
        self._usual: dict[str, _UsualLevel] = {}

    def heard(
        self, group: str, device: str, level_db: float | None, known: AbstractSet[str], now: float
    ) -> list[ArbitrationVerdict]:
        """A device heard the wake word. `known`: all devices of the group that could have heard it,
        this one included or not. What is decided by it, perhaps nothing yet."""
        if level_db is not None:
            level_db = max(QUIETEST_DB, min(LOUDEST_DB, level_db))
        verdicts: list[ArbitrationVerdict] = []
        race = self._races.get(group)
        is_old = race is not None and device in race.levels  # nobody hears a wake word twice
        if race is not None and not race.is_decided and (is_old or now >= race.began + WINDOW_S):
            verdicts += self._decide(race)
        if race is None or is_old or now >= race.began + LATE_S:
            race = self._races[group] = _WakeContest(now)
        race.levels[device] = level_db
        if race.is_decided:
            self._learn(device, level_db)
            verdicts.append(ArbitrationVerdict(device, won=False))
        elif known <= race.levels.keys():
            verdicts += self._decide(race)
        return verdicts

    def left(self, group: str, device: str, known: AbstractSet[str]) -> list[ArbitrationVerdict]:
        """A device is gone, which nobody has to wait for, and which cannot win any more. `known`:
        those that are left."""
        self.gave_up(group, device)
        race = self._races.get(group)
        if race is None or race.is_decided:
            return []
        race.levels.pop(device, None)
        if not race.levels:
            del self._races[group]
            return []
        return self._decide(race) if known <= race.levels.keys() else []

    def gave_up(self, group: str, device: str) -> None:
        """The winner will not bring the command. Those that lost have stopped listening, and cannot
        be told otherwise; whoever hears the wake word from now on is not late."""
        race = self._races.get(group)
        if race is not None and race.winner == device:
            del self._races[group]

    def due(self) -> float | None:
        """When `tick` has something to decide; None: nothing waits."""
        return min((race.began + WINDOW_S for race in self._undecided()), default=None)

    def tick(self, now: float) -> list[ArbitrationVerdict]:
        """Decide what waited long enough, and forget what is long over."""
        ripe = [race for race in self._undecided() if now >= race.began + WINDOW_S]
        verdicts = [verdict for race in ripe for verdict in self._decide(race)]
        over = [name for name, race in self._races.items() if now >= race.began + LATE_S]
        for name in over:
            del self._races[name]
        return verdicts

    def forget(self, device: str) -> None:
        """What was learnt of a device that is no longer known."""
        self._usual.pop(device, None)

    def correction_db(self, device: str) -> float:
        """How much louder than the others this device usually hears; 0 while nothing is known."""
        own = self._usual.get(device)
        if own is None or not own.count:
            return 0.0
        others = [one for name, one in self._usual.items() if name != device and one.count]
        if not others:
            return 0.0
        weight = sum(one.count for one in others)
        usual_db = sum(one.mean_db * one.count for one in others) / weight
        sure = own.count / (own.count + CAUTION) * weight / (weight + CAUTION)
        found = (own.mean_db - usual_db) * sure
        return max(-MAX_CORRECTION_DB, min(MAX_CORRECTION_DB, found))

    def _undecided(self) -> Iterator[_WakeContest]:
        return (race for race in self._races.values() if not race.is_decided)

    def _decide(self, race: _WakeContest) -> list[ArbitrationVerdict]:
        def rank(device: str) -> tuple[bool, float, str]:
            """The best first. Who says no level wins only among its like; ties go by name."""
            level_db = race.levels[device]
            if level_db is None:
                return True, 0.0, device
            return False, self.correction_db(device) - level_db, device

        winner, *losers = sorted(race.levels, key=rank)
        race.winner = winner
        for device, level_db in race.levels.items():
            self._learn(device, level_db)
        return [
            ArbitrationVerdict(winner, won=True),
            *(ArbitrationVerdict(one, won=False) for one in losers),
        ]

    def _learn(self, device: str, level_db: float | None) -> None:
        if level_db is not None:
            self._usual.setdefault(device, _UsualLevel()).add(level_db)
