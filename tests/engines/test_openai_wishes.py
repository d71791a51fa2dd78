"""What a session asks of a model beside its words, and servers that know nothing of it."""

import asyncio
from typing import Any

import pytest

from core.ports import ToolSpec
from engines.base import LlmOptions
from tests.engines.completions import Server, collected, refuses, sends, sse, talking, text

LIGHT = ToolSpec("light", "Turns a light on.", {"type": "object", "properties": {}})
GOOD = sends(sse(*text("Good.")))


def sent(
    server: Server,
    *wishes: LlmOptions,
    tools: tuple[ToolSpec, ...] = (LIGHT,),
    **settings: Any,
) -> list[tuple[Any, Any]]:
    """What each request said of calls side by side, and of thinking."""

    async def scenario() -> None:
        async with talking(server, **settings) as llm:
            for options in wishes:
                await collected(llm, tools=tools, options=options)

    asyncio.run(scenario())
    wanted = ("parallel_tool_calls", "reasoning_effort")
    return [tuple(body.get(name) for name in wanted) for body in server.bodies]  # type: ignore[misc]


ONE_AT_A_TIME = LlmOptions(parallel_tool_calls=False, reasoning_effort="low")


def test_wishes_are_sent_once_somebody_has_them() -> None:
    assert sent(Server(), ONE_AT_A_TIME, LlmOptions()) == [(False, "low"), (None, None)]


def test_without_tools_there_is_nothing_to_call() -> None:
    """OpenAI refuses the field beside no tools."""
    assert sent(Server(), ONE_AT_A_TIME, tools=()) == [(None, "low")]


def test_the_operator_has_the_last_word() -> None:
    taken_out = {"parallel_tool_calls": None, "reasoning_effort": "none"}
    assert sent(Server(), ONE_AT_A_TIME, extra_body=taken_out) == [(None, "none")]


REFUSALS = [
    ("Unsupported parameter: 'parallel_tool_calls' is not supported with this model.", None, "low"),
    ("Unrecognized request argument supplied: reasoning_effort", False, None),
    ("Unknown fields: parallel_tool_calls, reasoning_effort", None, None),
]


@pytest.mark.parametrize(("said", "calls", "effort"), REFUSALS)
def test_a_refused_wish_is_left_out(said: str, calls: Any, effort: Any) -> None:
    """And not asked for again."""
    server = Server(refuses(400, {"error": {"message": said}}), GOOD)
    asked = sent(server, ONE_AT_A_TIME, ONE_AT_A_TIME)
    assert asked == [(False, "low"), (calls, effort), (calls, effort)]


def test_another_effort_is_another_wish() -> None:
    said = {"error": {"message": "'reasoning_effort' does not support 'minimal'"}}
    server = Server(refuses(400, said), GOOD)
    minimal, high = LlmOptions(reasoning_effort="minimal"), LlmOptions(reasoning_effort="high")
    efforts = [effort for _, effort in sent(server, minimal, high, minimal)]
    assert efforts == ["minimal", None, "high", None]
