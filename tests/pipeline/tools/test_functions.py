"""Python functions as tools: the schema from annotations, and the conversion of arguments."""

import asyncio
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from core.errors import ConfigError
from core.ports import ToolContext, ToolOutcome
from engines.base import ToolCall
from pipeline.tools.functions import MAX_THREADS, FunctionTools, load_functions, tool
from pipeline.tools.toolbox import Toolbox
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts
from tests.pipeline.tools import user_tools

CONTEXT = ToolContext("conv_1", "en")
HOUSE = "tests.pipeline.tools.user_tools"


def house() -> FunctionTools:
    return FunctionTools(load_functions([HOUSE]))


def call(name: str, arguments: dict[str, Any]) -> ToolOutcome:
    return asyncio.run(house().call(name, arguments, CONTEXT))


def test_the_decorated_functions_of_a_module_are_tools() -> None:
    specs = {spec.name: spec for spec in house().tools(CONTEXT)}
    assert list(specs) == ["weather", "feed", "clean", "ring", "outcome"]
    weather = specs["weather"]
    assert weather.description == "Tells the weather.\n\nOnly made up."
    assert (weather.is_read_only, weather.timeout_s) == (True, 3)
    assert weather.parameters == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Where", "maxLength": 20},
            "day": {"enum": ["today", "tomorrow"], "default": "today"},
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert (specs["feed"].is_read_only, list(specs["feed"].parameters["properties"])) == (
        False,
        ["cat", "grams"],
    )


def test_specs_stay_the_same_object() -> None:
    tools = house()
    assert tools.tools(CONTEXT) is tools.tools(ToolContext("conv_2", "de"))


def test_an_async_function_is_awaited_and_gets_its_defaults() -> None:
    async def main() -> None:
        outcome = await house().call("weather", {"city": "Rome"}, CONTEXT)
        assert outcome == ToolOutcome({"city": "Rome", "day": "today"})

    assert run_virtual(main()) == 1


def test_a_plain_function_runs_in_a_thread_with_its_context() -> None:
    (result,) = call("feed", {"cat": "Felix"}).data.values()
    assert str(result).startswith("Felix 50 conv_1 tool_")


def test_structured_values_are_converted_in_both_directions() -> None:
    outcome = call("clean", {"rooms": [{"name": "bath"}]})
    assert outcome == ToolOutcome({"result": [{"name": "bath", "windows": 1}]})
    assert call("ring", {}) == ToolOutcome({"done": True})
    assert call("outcome", {}) == ToolOutcome({"x": 1}, error="no_such_bell")


def test_a_function_can_return_its_own_error_code() -> None:
    outcome = call("feed", {"cat": "Schrödinger's"})
    assert (outcome.error, outcome.data["cat"]) == ("no_such_cat", "Schrödinger's")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("weather", {"city": "Rome", "day": "someday"}),
        ("weather", {"city": "Rome" * 20}),
        ("weather", {"city": "Rome", "context": "mine"}),
        ("feed", {"cat": "Felix", "context": {}}),
        ("clean", {"rooms": [{"windows": 1}]}),
    ],
)
def test_wrong_arguments_do_not_reach_the_function(name: str, arguments: dict[str, Any]) -> None:
    assert call(name, arguments).error == "invalid_arguments"
    tools = house()
    run = Toolbox([tools], Counts()).run([ToolCall("c", name, arguments)], CONTEXT)
    assert '"invalid_arguments"' in asyncio.run(run)[0]


@tool()
def leave() -> None:
    """Does what a script would."""
    sys.exit("enough")


def test_a_function_that_calls_exit_fails_only_its_call() -> None:
    run = Toolbox([FunctionTools([leave])], Counts()).run([ToolCall("c", "leave", {})], CONTEXT)
    assert asyncio.run(run) == ['{"error": "tool_failed"}']


def test_a_cancelled_function_occupies_its_thread_until_it_ends() -> None:
    begun, go_on = threading.Semaphore(0), threading.Event()

    @tool()
    def slow() -> None:
        """Waits to be let go."""
        begun.release()
        go_on.wait(20)

    async def main() -> None:
        tools = FunctionTools([slow])
        async with asyncio.TaskGroup() as tasks:
            calls = [
                tasks.create_task(tools.call("slow", {}, CONTEXT)) for _ in range(MAX_THREADS + 1)
            ]
            for _ in range(MAX_THREADS):
                await asyncio.to_thread(begun.acquire)
            for task in calls[:-1]:
                task.cancel()
            await asyncio.wait(calls[:-1])
            assert not begun.acquire(blocking=False)
            go_on.set()
        assert calls[-1].result() == ToolOutcome({"done": True})

    asyncio.run(main())


def test_a_decorated_function_can_still_be_called() -> None:
    user_tools.no_tool()
    assert user_tools.clean([]) == []


def undocumented(x: int) -> None: ...


def unannotated(x) -> None:  # type: ignore[no-untyped-def]
    """Something."""


def many(*rooms: str) -> None:
    """Something."""


def odd(x: Callable[[], None]) -> None:
    """Something."""


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (undocumented, "docstring"),
        (unannotated, "x has no annotation"),
        (many, "cannot be passed by its name"),
        (odd, "'odd' cannot be a tool"),
    ],
)
def test_an_unsuitable_function_is_refused_at_the_start(function: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        FunctionTools([tool()(function)])


def test_two_functions_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="more than one function is called ring"):
        FunctionTools([user_tools.ring, user_tools.ring])


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("tests.pipeline.nowhere", "cannot be imported: No module named"),
        ("tests.pipeline.fakes", "has no function that is decorated"),
    ],
)
def test_a_module_without_tools_is_refused_at_the_start(module: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"tools.modules: {module!r} {why}"):
        load_functions([module])
