"""Timers as tools, named after Home Assistant's intents."""

from collections.abc import Mapping, Sequence

from core.ports import ToolContext, ToolOutcome, ToolSpec
from pipeline.tools.skills.arguments import (
    SkillHandler,
    ToolError,
    number_schema,
    read_number,
    read_text,
    run_tool,
    text_schema,
    tool,
)
from pipeline.tools.skills.timers import Timer, Timers, is_of

UNITS_S = {"hours": 3600, "minutes": 60, "seconds": 1}
"Seconds of each unit."
MAX_UNITS = 86400
"Largest number of any unit. `Timers` checks the whole duration."


class TimerTools:
    """A ToolProvider that starts, cancels, changes, pauses and reports a conversation's timers.

    If the person who speaks is known, "the timer" is one that this person started, in whichever
    conversation. The others' timers of the conversation count only if the person has none.
    """

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._handlers: Mapping[str, SkillHandler] = {
            "HassStartTimer": self._start,
            "HassCancelTimer": self._cancel,
            "HassCancelAllTimers": self._cancel_all,
            "HassIncreaseTimer": lambda arguments, context: self._change(arguments, context, 1),
            "HassDecreaseTimer": lambda arguments, context: self._change(arguments, context, -1),
            "HassPauseTimer": self._pause,
            "HassUnpauseTimer": self._resume,
            "HassTimerStatus": self._status,
        }
        self._specs = _timer_specs()

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        return self._specs

    async def call(
        self, name: str, arguments: Mapping[str, object], context: ToolContext
    ) -> ToolOutcome:
        return run_tool(self._handlers, name, arguments, context)

    def _start(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        duration_s = _duration_s(arguments)
        if duration_s is None:
            raise ToolError("hours, minutes or seconds are required", param="minutes")
        name = read_text(arguments, "name")
        timer = self._timers.start(
            context.conversation_id, context.language, duration_s, name, context.speaker
        )
        return self._outcome(timer)

    def _cancel(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        timer = _single(self._selected(arguments, context), arguments)
        self._timers.cancel(timer)
        return self._outcome(timer)

    def _cancel_all(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        timers = self._timers.of(context.conversation_id, context.speaker)
        for timer in timers:
            self._timers.cancel(timer)
        return ToolOutcome({"canceled": len(timers)})

    def _change(
        self, arguments: Mapping[str, object], context: ToolContext, sign: int
    ) -> ToolOutcome:
        by_s = _duration_s(arguments)
        if by_s is None:
            raise ToolError("hours, minutes or seconds are required", param="minutes")
        timer = self._changeable(arguments, context)
        return self._outcome(self._timers.change(timer, sign * by_s))

    def _pause(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        return self._outcome(self._timers.pause(self._changeable(arguments, context)))

    def _resume(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        return self._outcome(self._timers.resume(self._changeable(arguments, context)))

    def _status(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        found = self._selected(arguments, context)
        if not found and _has_selection(arguments):
            raise _not_found(arguments)
        return ToolOutcome({"timers": [self._fields(timer) for timer in found]})

    def _changeable(self, arguments: Mapping[str, object], context: ToolContext) -> Timer:
        """Returns the only selected timer that is not ringing: a ringing one cannot be changed.

        Raises ToolError if there is none, or more than one.
        """
        found = [timer for timer in self._selected(arguments, context) if not timer.is_ringing]
        return _single(found, arguments)

    def _selected(self, arguments: Mapping[str, object], context: ToolContext) -> list[Timer]:
        """Returns the timers that fit the name and the original duration: the person's own, or
        without any those of the conversation."""
        name = read_text(arguments, "name").casefold()
        started_s = _duration_s(arguments, "start_")
        fitting = [
            timer
            for timer in self._timers.of(context.conversation_id, context.speaker)
            if (not name or timer.name.casefold() == name)
            and (started_s is None or timer.duration_s == started_s)
        ]
        return [timer for timer in fitting if is_of(timer, context.speaker)] or fitting

    def _outcome(self, timer: Timer) -> ToolOutcome:
        return ToolOutcome({"timer": self._fields(timer)})

    def _fields(self, timer: Timer) -> dict[str, object]:
        return {
            "id": timer.id,
            "name": timer.name,
            "duration_s": round(timer.duration_s),
            "remaining_s": round(self._timers.remaining_s(timer)),
            "is_paused": timer.paused_s is not None,
            "is_ringing": timer.is_ringing,
        }


def _timer_specs() -> tuple[ToolSpec, ...]:
    named = {"name": text_schema("Name of the timer, if it has one")}
    parameters = {**named, **_durations("start_", "Duration it was started with, to tell timers")}
    length = _durations("", "Duration")
    return (
        tool("HassStartTimer", "Starts a timer", {**named, **length}),
        tool("HassCancelTimer", "Cancels a timer", parameters),
        tool("HassCancelAllTimers", "Cancels all timers", {}),
        tool("HassIncreaseTimer", "Adds time to a timer", {**parameters, **length}),
        tool("HassDecreaseTimer", "Takes time from a timer", {**parameters, **length}),
        tool("HassPauseTimer", "Pauses a timer", parameters),
        tool("HassUnpauseTimer", "Lets a paused timer go on", parameters),
        tool("HassTimerStatus", "Tells how much time is left", parameters, is_read_only=True),
    )


def _durations(prefix: str, description: str) -> dict[str, dict[str, object]]:
    return {
        f"{prefix}{unit}": number_schema(f"{description}, {unit}", 0, MAX_UNITS) for unit in UNITS_S
    }


def _duration_s(arguments: Mapping[str, object], prefix: str = "") -> float | None:
    parts = [
        (read_number(arguments, f"{prefix}{unit}", 0, MAX_UNITS), seconds)
        for unit, seconds in UNITS_S.items()
    ]
    given = [number * seconds for number, seconds in parts if number is not None]
    return sum(given) if given else None


def _has_selection(arguments: Mapping[str, object]) -> bool:
    return bool(read_text(arguments, "name")) or _duration_s(arguments, "start_") is not None


def _single(found: Sequence[Timer], arguments: Mapping[str, object]) -> Timer:
    if not found:
        raise _not_found(arguments)
    if len(found) > 1:
        names = [timer.name for timer in found if timer.name]
        raise ToolError("more than one timer fits", code="multiple_timers_matched", names=names)
    return found[0]


def _not_found(arguments: Mapping[str, object]) -> ToolError:
    name = read_text(arguments, "name")
    return ToolError("there is no such timer", code="timer_not_found", name=name)
