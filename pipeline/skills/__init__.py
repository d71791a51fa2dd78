"""Built-in skills: each is a ToolProvider that acts on the home, the clock or the timers."""

from pipeline.skills.clock import ClockTools
from pipeline.skills.devices import HomeTools
from pipeline.skills.lists import ListTools
from pipeline.skills.timer_tools import TimerTools
from pipeline.skills.timers import Timer, Timers

__all__ = ["ClockTools", "HomeTools", "ListTools", "Timer", "TimerTools", "Timers"]
