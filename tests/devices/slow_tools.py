"""A tool that is slow to a user who waits for nothing, so that a test need not wait either."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from core.ports import ToolContext, ToolOutcome
from tests.pipeline.fakes import Adder


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """`add` takes 300 ms; a sentence bridges what takes 50, and no other follows soon."""

    async def add(
        self: Adder, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        await asyncio.sleep(0.3)
        return ToolOutcome({"sum": arguments["a"] + arguments["b"]})

    monkeypatch.setattr(Adder, "call", add)
    monkeypatch.setattr("pipeline.tools.fillers.WAITING_AFTER_S", 0.05)
