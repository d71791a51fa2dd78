"""A tool that tells which bin is collected on which day."""

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from core.ports import ToolProvider
from pipeline.tools.functions import FunctionTools, tool

Day = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """The table `[tools.plugins.bins]`."""

    collected: Mapping[Day, str]
    "Day -> the bin that is collected."


def create(settings: Settings) -> ToolProvider:
    """Called once, when the server starts."""

    @tool(read_only=True)
    def which_bin(day: Day) -> dict[str, str]:
        """Tells which bin is collected on a day of the week."""
        return {"bin": settings.collected.get(day, "none")}

    return FunctionTools([which_bin])
