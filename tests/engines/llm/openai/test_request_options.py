"""A session's options in requests, and servers that do not know them."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from aiohttp import web

from core.errors import EngineError, RequestError
from core.ports import ToolSpec
from engines.base import AnswerFormat, LlmOptions
from engines.llm import openai
from engines.llm.vllm.command_line import http_settings
from engines.llm.vllm.settings import Settings as VllmSettings
from tests.engines.llm.openai.completions_server import (
    Server,
    collect_reply,
    open_client,
    refuses,
    sends,
    sse,
    text,
)

pytestmark = pytest.mark.live

LIGHT = ToolSpec("light", "Turns a light on.", {"type": "object", "properties": {}})
GOOD = sends(sse(*text("Good.")))


def sent(
    server: Server,
    *wishes: LlmOptions,
    tools: tuple[ToolSpec, ...] = (LIGHT,),
    **settings: Any,
) -> list[tuple[Any, Any]]:
    """Returns the fields of each request about parallel calls and reasoning."""

    async def scenario() -> None:
        async with open_client(server, **settings) as llm:
            for options in wishes:
                await collect_reply(llm, tools=tools, options=options)

    asyncio.run(scenario())
    wanted = ("parallel_tool_calls", "reasoning_effort")
    return [tuple(body.get(name) for name in wanted) for body in server.bodies]  # type: ignore[misc]


ONE_AT_A_TIME = LlmOptions(parallel_tool_calls=False, reasoning_effort="low")


def test_options_are_sent_only_if_set() -> None:
    assert sent(Server(), ONE_AT_A_TIME, LlmOptions()) == [(False, "low"), (None, None)]


def test_parallel_calls_are_not_sent_without_tools() -> None:
    """OpenAI refuses the field in a request without tools."""
    assert sent(Server(), ONE_AT_A_TIME, tools=()) == [(None, "low")]


def test_configured_extra_fields_take_precedence() -> None:
    taken_out = {"parallel_tool_calls": None, "reasoning_effort": "none"}
    assert sent(Server(), ONE_AT_A_TIME, extra_body=taken_out) == [(None, "none")]


REFUSALS = [
    ("Unsupported parameter: 'parallel_tool_calls' is not supported with this model.", None, "low"),
    ("Unrecognized request argument supplied: reasoning_effort", False, None),
    ("Unknown fields: parallel_tool_calls, reasoning_effort", None, None),
]


@pytest.mark.parametrize(("said", "calls", "effort"), REFUSALS)
def test_a_refused_option_is_left_out(said: str, calls: Any, effort: Any) -> None:
    """Later requests leave it out, too."""
    server = Server(refuses(400, {"error": {"message": said}}), GOOD)
    asked = sent(server, ONE_AT_A_TIME, ONE_AT_A_TIME)
    assert asked == [(False, "low"), (calls, effort), (calls, effort)]


@pytest.mark.parametrize("is_refused", [False, True])
def test_an_earlier_answer_does_not_overwrite_a_later_refusal(is_refused: bool) -> None:
    """This holds whether the earlier answer was itself refused or not."""
    begun, other_is_done = asyncio.Event(), asyncio.Event()
    no_effort = {"error": {"message": "Unrecognized request argument supplied: reasoning_effort"}}
    no_calls = {"error": {"message": "Unsupported parameter: 'parallel_tool_calls'"}}

    async def first(request: web.Request) -> web.StreamResponse:
        if is_refused:
            begun.set()
            await other_is_done.wait()
            return web.json_response(no_calls, status=400)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        await response.write(sse(*text("Good."), done=False))
        begun.set()
        await other_is_done.wait()
        await response.write(sse(*text(" Better.")))
        return response

    server = Server(first, refuses(400, no_effort), GOOD)
    low, calls = LlmOptions(reasoning_effort="low"), LlmOptions(parallel_tool_calls=False)

    async def scenario() -> None:
        async with open_client(server) as llm, asyncio.TaskGroup() as tasks:
            former = tasks.create_task(collect_reply(llm, tools=(LIGHT,), options=calls))
            await begun.wait()
            await collect_reply(llm, tools=(LIGHT,), options=low)
            other_is_done.set()
            await former
            await collect_reply(llm, tools=(LIGHT,), options=ONE_AT_A_TIME)

    asyncio.run(scenario())
    last = server.bodies[-1]
    assert "reasoning_effort" not in last
    assert ("parallel_tool_calls" in last) != is_refused


def test_another_effort_is_tried_separately() -> None:
    said = {"error": {"message": "'reasoning_effort' does not support 'minimal'"}}
    server = Server(refuses(400, said), GOOD)
    minimal, high = LlmOptions(reasoning_effort="minimal"), LlmOptions(reasoning_effort="high")
    efforts = [effort for _, effort in sent(server, minimal, high, minimal)]
    assert efforts == ["minimal", None, "high", None]


VLLM = {"data": [{"id": "tiny", "owned_by": "vllm"}, {"id": "other", "owned_by": "them"}]}
LLAMA = {"data": [{"id": "tiny.gguf", "owned_by": "llamacpp"}]}
PENALIZED = LlmOptions(repetition_penalty=1.15)

OWNERS: dict[str, tuple[Any, str, dict[str, float]]] = {
    "vLLM": (VLLM, "tiny", {"repetition_penalty": 1.15}),
    "beside others": (VLLM, "other", {}),
    "llama.cpp under any name": (LLAMA, "mine", {"repeat_penalty": 1.15}),
    "an alias among many": (VLLM, "alias", {}),
    "no list": (404, "tiny", {}),
}


def penalties(server: Server, *wishes: LlmOptions, **settings: Any) -> list[dict[str, float]]:
    async def scenario() -> None:
        async with open_client(server, **settings) as llm:
            for options in wishes:
                await collect_reply(llm, options=options)

    asyncio.run(scenario())
    names = ("repetition_penalty", "repeat_penalty")
    return [{name: body[name] for name in names if name in body} for body in server.bodies]


@pytest.mark.parametrize("case", OWNERS)
def test_a_penalty_is_sent_with_a_configured_model(case: str) -> None:
    """The server's owner is queried once, by the first request with a penalty."""
    models, model, penalty = OWNERS[case]
    server = Server(models=models)
    wishes = (LlmOptions(), PENALIZED, PENALIZED)
    assert penalties(server, *wishes, model=model, context_tokens=512) == [{}, penalty, penalty]
    assert server.listings == 1


def test_a_server_without_a_model_list_still_answers() -> None:
    server = Server(models=503)

    async def scenario() -> None:
        async with open_client(server, model="tiny", context_tokens=512) as llm:
            await collect_reply(llm, options=PENALIZED)
            server.models = VLLM
            await collect_reply(llm, options=PENALIZED)

    asyncio.run(scenario())
    assert ["repetition_penalty" in body for body in server.bodies] == [False, True]


def test_the_model_list_is_not_queried_without_need() -> None:
    server = Server(models=VLLM)
    assert penalties(server, LlmOptions(), model="tiny", context_tokens=512) == [{}]
    assert server.listings == 0


def test_a_vllm_of_ours_is_recognised_with_a_configured_context() -> None:
    server = Server(models={"data": [{"id": "tiny", "owned_by": "vllm"}]})
    ours = VllmSettings(model="org/tiny", request={"context_tokens": 512})

    async def scenario() -> None:
        async with server.running():
            llm = openai.create(http_settings(ours, server.url.removesuffix("/v1"), "key"), "vllm")
            async with aclosing(llm):
                await collect_reply(llm, options=PENALIZED)

    asyncio.run(scenario())
    assert server.bodies[0]["repetition_penalty"] == 1.15


@pytest.mark.parametrize(
    ("form", "sent"),
    [
        (AnswerFormat(), {"type": "json_object"}),
        (
            AnswerFormat({"type": "object"}, "light"),
            {"type": "json_schema", "json_schema": {"name": "light", "schema": {"type": "object"}}},
        ),
    ],
)
def test_a_form_of_the_answer_is_sent(form: AnswerFormat, sent: Any) -> None:
    server = Server()

    async def scenario() -> None:
        async with open_client(server) as llm:
            await collect_reply(llm, options=LlmOptions(answer_format=form))
            await collect_reply(llm)

    asyncio.run(scenario())
    assert [body.get("response_format") for body in server.bodies] == [sent, None]


def test_a_schema_that_the_server_refuses_is_the_callers_error() -> None:
    server = Server(refuses(400, {"error": {"message": "failed to parse grammar"}}))

    async def scenario() -> None:
        async with open_client(server) as llm:
            with pytest.raises(RequestError, match="failed to parse grammar") as refused:
                await collect_reply(llm, options=LlmOptions(answer_format=AnswerFormat()))
            assert refused.value.code == "refused_by_model"
            with pytest.raises(EngineError):
                await collect_reply(llm)

    asyncio.run(scenario())
