"""A tool that counts as slow after a moment, so that tests of slow tools need not wait."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from core.ports import ToolContext, ToolOutcome
from tests.pipeline.fakes import Adder


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `add` take 300 ms, and a sentence bridge every call of 50 ms or more."""

    async def add(
        self: Adder, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        await asyncio.sleep(0.3)
        return ToolOutcome({"sum": arguments["a"] + arguments["b"]})

    monkeypatch.setattr(Adder, "call", add)
    monkeypatch.setattr("pipeline.tools.fillers.WAITING_AFTER_S", 0.05)
