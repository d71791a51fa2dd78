"""The toolbox: which tools it offers, which of them it runs, and the results that a model gets."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.errors import NotFound
from core.ports import ToolContext, ToolOutcome, ToolSpec
from engines.base import ToolCall
from pipeline.tools.calls.arguments import ArgumentCheck, InvalidArguments
from pipeline.tools.calls.results import MAX_RESULT_CHARS, as_json
from pipeline.tools.toolbox import MAX_PARALLEL, MAX_TOOLS, Toolbox, ToolCatalogue
from tests.loop import run_virtual
from tests.pipeline.fakes import Counts

CONTEXT = ToolContext("conv_1", "en")
ANYTHING: Mapping[str, Any] = {"type": "object"}


@dataclass
class SlowProvider:
    """A provider of tools that take their time or fail."""

    specs: tuple[ToolSpec, ...]
    answer: Any = field(default_factory=dict)
    takes_s: float = 0.0
    running: int = 0
    most: int = 0
    "The most calls that ran at once."
    called: list[str] = field(default_factory=list)
    cancelled: int = 0

    def tools(self, context: ToolContext) -> Sequence[ToolSpec]:
        return self.specs

    async def call(
        self, name: str, arguments: Mapping[str, Any], context: ToolContext
    ) -> ToolOutcome:
        self.called.append(name)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await asyncio.sleep(self.takes_s)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return ToolOutcome(self.answer)


def provider_of(*names: str, **fields: Any) -> SlowProvider:
    return SlowProvider(tuple(ToolSpec(name, "Does it.", ANYTHING) for name in names), **fields)


def run(
    toolbox: Toolbox, *calls: tuple[str, dict[str, Any]], allowed: Sequence[str] | None = None
) -> list[Any]:
    """Returns the results of the calls, followed by the virtual seconds that they took."""
    results: list[Any] = []

    async def main() -> None:
        tool_calls = [ToolCall(f"call_{n}", *call) for n, call in enumerate(calls)]
        results.extend(map(json.loads, await toolbox.run(tool_calls, CONTEXT, allowed)))

    seconds = run_virtual(main())
    return [*results, seconds]


def test_calls_run_in_parallel_up_to_a_limit() -> None:
    slow = provider_of("a", takes_s=1)
    *results, seconds = run(Toolbox([slow], Counts()), *[("a", {})] * (MAX_PARALLEL + 1))
    assert slow.most == MAX_PARALLEL
    assert seconds == 2
    assert results == [{}] * (MAX_PARALLEL + 1)


def test_a_slow_tool_times_out_without_affecting_the_others() -> None:
    slow, quick = provider_of("slow", takes_s=60), provider_of("quick", answer={"x": 1})
    metrics = Counts()
    late, done, seconds = run(Toolbox([slow, quick], metrics), ("slow", {}), ("quick", {}))
    assert late["error"] == "tool_timeout"
    assert "10 s" in late["message"]
    assert done == {"x": 1}
    assert seconds == 10
    assert slow.cancelled == 1


def test_a_tool_can_declare_a_longer_timeout() -> None:
    patient = SlowProvider((ToolSpec("a", "", ANYTHING, timeout_s=30),), takes_s=20)
    assert run(Toolbox([patient], Counts(), timeout_s=1), ("a", {})) == [{}, 20]
    hasty = SlowProvider((ToolSpec("a", "", ANYTHING),), takes_s=20)
    result, seconds = run(Toolbox([hasty], Counts(), timeout_s=1), ("a", {}))
    assert (result["error"], seconds) == ("tool_timeout", 1)


def test_tool_durations_are_observed_by_outcome() -> None:
    """The labels never contain names or arguments, which may be private."""
    metrics = Counts()
    good, slow = provider_of("good", takes_s=2), provider_of("slow", takes_s=60)
    bad = provider_of("bad", answer=NotFound("no such cake"), takes_s=1)
    toolbox = Toolbox([good, slow, bad], metrics, timeout_s=5)
    run(toolbox, ("good", {}), ("slow", {"a": 1}), ("bad", {}), ("unknown", {}))
    name = "earshot_tool_seconds"
    assert metrics.labelled == {f"{name}:done": [2], f"{name}:timeout": [5], f"{name}:failed": [1]}


def test_cancelling_an_answer_cancels_its_tools() -> None:
    slow = provider_of("slow", takes_s=5)
    metrics = Counts()

    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await Toolbox([slow], metrics).run([ToolCall("c", "slow", {})], CONTEXT)
        assert (slow.cancelled, slow.running) == (1, 0)
        assert metrics.labelled["earshot_tool_seconds:cancelled"] == [1]

    run_virtual(main())


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (NotFound("no such cake"), {"error": "not_found", "message": "no such cake"}),
        (ZeroDivisionError("a bug"), {"error": "tool_failed"}),
        ({"a": {1: "no text as key", (2, 3): "nor this"}}, {"error": "tool_failed"}),
        ({"a": object}, {"a": "<class 'object'>"}),
    ],
)
def test_failures_become_results(
    answer: Any, expected: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    result, _ = run(Toolbox([provider_of("a", answer=answer)], Counts()), ("a", {}))
    assert result == expected
    has_chain = "failed: " in caplog.text
    assert has_chain == (expected.get("error") == "tool_failed")


def test_a_tool_that_is_not_allowed_is_neither_offered_nor_run() -> None:
    both = provider_of("a", "b")
    toolbox = Toolbox([both], Counts())
    assert [spec.name for spec in toolbox.specs(CONTEXT, ["b"])] == ["b"]
    assert toolbox.names(CONTEXT) == ("a", "b")
    refused, unknown, done, _ = run(toolbox, ("a", {}), ("z", {}), ("b", {}), allowed=["b"])
    assert refused["error"] == unknown["error"] == "no_such_tool"
    assert done == {}
    assert both.called == ["b"]


def test_only_read_only_tools_run_early() -> None:
    specs = (ToolSpec("look", "", ANYTHING, is_read_only=True), ToolSpec("act", "", ANYTHING))
    toolbox = Toolbox([SlowProvider(specs)], Counts())
    early = [toolbox.may_run_early(ToolCall("c", n, {}), CONTEXT) for n in ("look", "act", "none")]
    assert early == [True, False, True]


def test_a_tool_that_appears_after_the_early_check_is_not_run() -> None:
    """The tool did not exist when the toolbox was asked whether the call may run early."""
    late = provider_of()

    async def main() -> None:
        toolbox = Toolbox([late], Counts())
        call = ToolCall("c", "act", {})
        assert toolbox.may_run_early(call, CONTEXT)
        async with asyncio.TaskGroup() as tasks:
            results = tasks.create_task(toolbox.run([call], CONTEXT))
            await asyncio.sleep(0)  # the run has begun, its calls have not
            late.specs = (ToolSpec("act", "", ANYTHING),)
        assert "no_such_tool" in results.result()[0]
        assert late.called == []

    run_virtual(main())


def test_the_first_of_two_tools_keeps_its_name(caplog: pytest.LogCaptureFixture) -> None:
    first, second = (
        provider_of("a"),
        SlowProvider((ToolSpec("a", "", ANYTHING, fallback_name="two_a"),)),
    )
    third = provider_of("a")
    toolbox = Toolbox([first, second, third], Counts())
    with caplog.at_level(logging.WARNING):
        assert toolbox.names(CONTEXT) == ("a", "two_a")
        assert [spec.name for spec in toolbox.specs(CONTEXT)] == ["a", "two_a"]
        second.specs = (ToolSpec("a", "new", ANYTHING, fallback_name="two_a"),)
        assert [spec.description for spec in toolbox.specs(CONTEXT)] == ["Does it.", "new"]
    run(toolbox, ("two_a", {}))
    assert (first.called, second.called) == ([], ["a"])
    assert len(caplog.records) == 1


def test_specs_are_rebuilt_only_when_they_change() -> None:
    offered = provider_of("a", "b")
    toolbox = Toolbox([offered], Counts())
    before = toolbox.specs(CONTEXT)
    assert all(x is y for x, y in zip(before, toolbox.specs(CONTEXT), strict=True))
    offered.specs = offered.specs[:1]
    assert toolbox.names(CONTEXT) == ("a",)


SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"enum": ["Berlin", "Paris"]},
        "days": {"type": "integer", "minimum": 1},
        "rooms": {"type": "array", "items": {"$ref": "#/$defs/Room"}},
    },
    "required": ["city"],
    "additionalProperties": False,
    "$defs": {"Room": {"type": "object", "properties": {"name": {"type": "string"}}}},
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"city": "Rome"}, "city: 'Rome' is not one of 'Berlin', 'Paris'"),
        ({"city": "Paris", "days": "two"}, "days: must be integer, got 'two'"),
        ({"city": "Paris", "days": 0}, "days: 0 is less than the minimum of 1"),
        ({"city": "Paris", "rooms": [{}, {"name": 1}]}, "rooms[1].name: must be string, got 1"),
        ({}, "arguments: 'city' is a required property"),
    ],
)
def test_wrong_arguments_are_refused_with_the_allowed_values(
    arguments: dict[str, Any], message: str
) -> None:
    picky = SlowProvider((ToolSpec("a", "", SCHEMA),))
    result, _ = run(Toolbox([picky], Counts()), ("a", arguments))
    assert result == {"error": "invalid_arguments", "message": message}
    assert picky.called == []


def test_a_provider_that_checks_arguments_itself_gets_all_calls() -> None:
    lenient = SlowProvider((ToolSpec("a", "", SCHEMA, checks_arguments=True),))
    assert run(Toolbox([lenient], Counts()), ("a", {"city": "Rome"}))[0] == {}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "nonsense"},
        {"$ref": "http://127.0.0.1:9/never-fetched"},
        {"$ref": "#/$defs/missing"},
        {"properties": {"x": {"pattern": "^(a+)+$"}}},
    ],
)
def test_an_invalid_or_dangerous_schema_accepts_everything(
    schema: dict[str, Any],
) -> None:
    ArgumentCheck(schema).check({"x": "a" * 60 + "!"})


def test_an_unknown_argument_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidArguments, match="known are: city, days, rooms"):
        ArgumentCheck(SCHEMA).check({"city": "Paris", "when": "now"})


@pytest.mark.parametrize(
    "data",
    [
        {"rows": [{"id": n, "text": "x" * 50} for n in range(5000)]},
        {"text": "y" * 100_000},
        {f"key {n}": n for n in range(10_000)},
        {"k" * 50_000: 1},
        {"deep": [[[["z" * 500] * 20] * 20] * 20] * 20},
    ],
)
def test_a_result_that_is_too_long_is_cut_and_marked(data: dict[str, Any]) -> None:
    text = as_json(ToolOutcome(data))
    assert len(text) <= MAX_RESULT_CHARS
    assert "had" in json.loads(text)["truncated"]


def test_the_first_rows_of_a_long_result_stay_whole() -> None:
    rows = [{"id": n, "text": "x" * 50} for n in range(5000)]
    shown = json.loads(as_json(ToolOutcome({"rows": rows})))["rows"]
    assert shown[:-1] == rows[: len(shown) - 1]
    assert len(shown) > 20
    assert shown[-1] == f"... {5000 - len(shown) + 1} entries left out"


def test_a_long_error_keeps_its_code() -> None:
    result = json.loads(as_json(ToolOutcome({"k" * 50_000: "why"}, error="no_such_cake")))
    assert result["error"] == "no_such_cake"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=15,
)


@settings(max_examples=40)
@given(st.dictionaries(st.text(), values), st.integers(400, 2000))
def test_any_result_becomes_json_of_bounded_length(data: dict[str, Any], limit: int) -> None:
    text = as_json(ToolOutcome(data), limit)
    assert len(text) <= limit
    assert isinstance(json.loads(text), dict)
    text.encode()


def test_the_number_of_tools_is_limited_and_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    ours = SlowProvider((ToolSpec("light", "", ANYTHING),))
    servers = [
        SlowProvider(tuple(ToolSpec(f"{name}_{n}", "", ANYTHING) for n in range(64)))
        for name in "abc"
    ]
    catalogues = ToolCatalogue((ours, *servers))
    offered = catalogues.get(CONTEXT)
    assert len(offered) == MAX_TOOLS
    assert next(iter(offered)) == "light"
    assert list(offered)[-1] == "b_62"
    for shop in servers:
        shop.specs = (*shop.specs,)
    catalogues.get(ToolContext("conv_2", "de"))
    [warning] = [record.getMessage() for record in caplog.records]
    assert warning.startswith("! 193 tools are known, and a model is offered 128 at most. 65 are")
    assert "b_63, c_0, c_1" in warning
    assert "Name the useful ones under 'tools' of each MCP server" in warning
