"""Changes of timers that a satellite's display shows. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.tools.home import TimerState

TimerChangeKind = Literal["started", "updated", "cancelled", "finished"]


@dataclass(frozen=True, slots=True)
class TimerChange:
    """One change of a timer."""

    kind: TimerChangeKind
    timer: TimerState
    "Its present state; the last one for a timer that is gone."


def timer_changes(
    shown: Mapping[str, TimerState], present: Iterable[TimerState]
) -> list[TimerChange]:
    """Returns the changes for a display that shows the timers `shown` (id -> timer).

    The display counts down by itself, so time that has passed is no change.
    """
    now = {timer.id: timer for timer in present}
    changes: list[TimerChange] = []
    for timer in now.values():
        before = shown.get(timer.id)
        if before is None and timer.state != "ringing":
            changes.append(TimerChange("started", timer))
        elif before is not None and before.state != "ringing" and timer.state == "ringing":
            changes.append(TimerChange("finished", timer))
        elif before is not None and _facts(before) != _facts(timer):
            changes.append(TimerChange("updated", timer))
    gone = (timer for timer_id, timer in shown.items() if timer_id not in now)
    changes += [TimerChange("cancelled", timer) for timer in gone if timer.state != "ringing"]
    return changes


def _facts(timer: TimerState) -> tuple[str, float, str]:
    return timer.name, timer.duration_s, timer.state
