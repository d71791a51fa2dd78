"""An example of a user's own module of tools."""

import asyncio
import threading
from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta

from core.ports import ToolContext, ToolOutcome
from pipeline.tools.functions import tool
from pipeline.tools.skills.arguments import ToolError

Day = Literal["today", "tomorrow"]


@dataclass(frozen=True, slots=True)
class Room:
    name: str
    windows: int = 1


@tool(read_only=True, timeout_s=3)
async def weather(
    city: Annotated[str, Meta(description="Where", max_length=20)], day: Day = "today"
) -> dict[str, str]:
    """Tells the weather.

    Only made up.
    """
    await asyncio.sleep(1)
    return {"city": city, "day": day}


@tool()
def feed(cat: str, grams: int = 50, *, context: ToolContext) -> str:
    """Feeds a cat."""
    if cat == "Schrödinger's":
        raise ToolError("that one is in a box", code="no_such_cat", cat=cat)
    return f"{cat} {grams} {context.conversation_id} {threading.current_thread().name}"


@tool()
def clean(rooms: list[Room]) -> list[Room]:
    """Cleans rooms."""
    return rooms


@tool()
async def ring() -> None:
    """Rings the bell."""


@tool()
async def outcome() -> ToolOutcome:
    """Says it in its own words."""
    return ToolOutcome({"x": 1}, error="no_such_bell")


def no_tool() -> None:
    """Is not a tool."""
