"""The generator of a response's text passes pieces on at once and closes what it opened."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any

import pytest

from core.errors import EngineError
from core.ports import ToolContext
from engines.base import Message, TextDelta
from pipeline.response.generation import TextGeneration
from pipeline.response.plan import ResponsePlan
from pipeline.shared.turn import Turn
from pipeline.tools.calls.rounds import ToolAccess
from pipeline.tools.toolbox import Toolbox
from tests.loop import run_virtual
from tests.pipeline.fakes import Adder, Counts, EchoLlm, ToneTts


class LoggedLlm(EchoLlm):
    """A model that logs when a reply begins and ends."""

    def __init__(self, log: list[str]) -> None:
        super().__init__()
        self.log = log

    async def reply(self, *given: Any, **how: Any) -> AsyncGenerator[Any, None]:
        self.log.append("reply")
        try:
            async for delta in super().reply(*given, **how):
                yield delta
        finally:
            self.log.append("closed")


class FaultyLlm(EchoLlm):
    """A model that raises an unexpected error after its first word."""

    async def reply(self, *_: Any, **__: Any) -> AsyncGenerator[TextDelta, None]:
        yield TextDelta("Well")
        raise ZeroDivisionError


def generation(
    llm: EchoLlm, log: list[str], question: str, metrics: Counts, text: str | None = None
) -> TextGeneration:
    @asynccontextmanager
    async def slot() -> AsyncIterator[None]:
        log.append("slot")
        try:
            yield
        finally:
            log.append("free")

    async def at_once() -> None:
        """Confirms the turn at once."""

    plan = ResponsePlan(
        Turn("turn_1"), "text", "en", "", "default", 1.0, llm=llm, tts=ToneTts(), text=text
    )
    access = ToolAccess(
        Toolbox([Adder()], metrics), ToolContext("conv_1", "en"), at_once, lambda _: None
    )
    return TextGeneration(plan, [Message("user", question)], access, slot, metrics)


def test_closing_the_stream_closes_the_request_before_freeing_its_slot() -> None:
    log: list[str] = []

    async def main() -> None:
        llm = LoggedLlm(log)
        async with aclosing(generation(llm, log, "one", Counts()).stream()) as deltas:
            assert await anext(deltas) == "you "
            assert log == ["slot", "reply"]
        assert log == ["slot", "reply", "closed", "free"]

    run_virtual(main())


def test_each_round_of_tools_takes_its_own_slot() -> None:
    log: list[str] = []

    async def main() -> None:
        deltas = generation(LoggedLlm(log), log, "four", Counts()).stream()
        assert "".join([str(delta) async for delta in deltas]) == "you said it is 4. "

    run_virtual(main())
    assert log == ["slot", "reply", "closed", "free"] * 2


def test_an_unexpected_error_of_a_model_becomes_a_counted_engine_error() -> None:
    metrics, log = Counts(), list[str]()

    async def main() -> None:
        deltas = generation(FaultyLlm(), log, "one", metrics).stream()
        assert await anext(deltas) == "Well"
        with pytest.raises(EngineError, match="ZeroDivisionError"):
            await anext(deltas)

    run_virtual(main())
    assert log == ["slot", "free"]
    assert metrics.counts["earshot_errors:engine_failed"] == 1


def test_a_given_text_is_passed_on_unchanged_without_asking_the_model() -> None:
    log: list[str] = []

    async def main() -> None:
        deltas = generation(LoggedLlm(log), log, "one", Counts(), text="Tea is ready.").stream()
        assert [delta async for delta in deltas] == ["Tea is ready."]

    run_virtual(main())
    assert log == []
