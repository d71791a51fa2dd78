"""Time and date as tools."""

from collections.abc import Mapping, Sequence

from core.ports import Clock, ToolContext, ToolOutcome, ToolSpec
from pipeline.tools.skills.arguments import SkillHandler, run_tool, tool


class ClockTools:
    """A ToolProvider that tells the local time and date."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._handlers: Mapping[str, SkillHandler] = {
            "HassGetCurrentTime": self._time,
            "HassGetCurrentDate": self._date,
        }
        self._specs = (
            tool("HassGetCurrentTime", "Tells the local time", {}, is_read_only=True),
            tool("HassGetCurrentDate", "Tells the date and the weekday", {}, is_read_only=True),
        )

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        return self._specs

    async def call(
        self, name: str, arguments: Mapping[str, object], context: ToolContext
    ) -> ToolOutcome:
        return run_tool(self._handlers, name, arguments, context)

    def _time(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        now = self._clock.wall()
        return ToolOutcome({"time": now.strftime("%H:%M"), "hour": now.hour, "minute": now.minute})

    def _date(self, arguments: Mapping[str, object], context: ToolContext) -> ToolOutcome:
        today = self._clock.wall().date()
        return ToolOutcome({"date": today.isoformat(), "weekday": today.isoweekday()})
