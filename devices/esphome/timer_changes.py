"""Changes of a satellite's timers, as its display is told them. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from pipeline.tools.home import TimerState

TimerChangeKind = Literal["started", "updated", "cancelled", "finished"]


@dataclass(frozen=True, slots=True)
class TimerChange:
    """One change, with the timer as it is now; as it was, if it is gone."""

    kind: TimerChangeKind
    timer: TimerState


def timer_changes(
    shown: Mapping[str, TimerState], present: Iterable[TimerState]
) -> list[TimerChange]:
    """Returns what a display that shows `shown` (by id) has to be told. A timer counts down on the
    display itself, so time that went by is no change."""
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
