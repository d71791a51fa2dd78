"""Built-in skills: each is a ToolProvider that acts on the home, the clock or the timers."""

from pipeline.tools.skills.clock import ClockTools
from pipeline.tools.skills.controls import HomeControls
from pipeline.tools.skills.devices import HomeTools
from pipeline.tools.skills.lists import ListTools
from pipeline.tools.skills.timer_tools import TimerTools
from pipeline.tools.skills.timers import Timer, Timers

__all__ = ["ClockTools", "HomeControls", "HomeTools", "ListTools", "Timer", "TimerTools", "Timers"]
