"""The engine with a real HTTP server: requests, answers, disconnects, and the served models."""

import asyncio
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
import uvloop

from core.conversation.usage import TokenUsage
from core.errors import EngineError
from core.ports import ToolSpec
from engines.base import LlmOptions, Message, TextDelta, ToolCall
from engines.llm.openai.engine import OpenAiLlm
from engines.llm.openai.settings import Settings
from tests.engines.llm.interrupted_session import interrupt_answer
from tests.engines.llm.openai.completions_server import (
    Server,
    answers,
    collect_reply,
    delta,
    open_client,
    refuses,
    reply_text,
    sends,
    sse,
    text,
)

pytestmark = pytest.mark.live

LIGHT = ToolSpec("light", "Turns a light on.", {"type": "object", "properties": {}})
KEY = "sk-very-secret"


def test_an_answer_streams_with_its_token_counts() -> None:
    counts = {"choices": [], "usage": {"prompt_tokens": 12, "completion_tokens": 3}}
    server = Server(sends(sse(delta(role="assistant", content=""), *text("Hel", "lo."), counts)))
    assert answers(server) == [TextDelta("Hel"), TextDelta("lo."), TokenUsage(12, 3)]


def test_cached_tokens_of_the_server_are_counted() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": 8, "audio_tokens": 0}}
    counts = {"prompt_tokens": 12, "completion_tokens": 3, **details}
    server = Server(sends(sse(*text("Hi."), {"choices": [], "usage": counts})))
    assert answers(server)[-1] == TokenUsage(12, 3, 8)


def test_negative_counts_become_zero() -> None:
    details = {"prompt_tokens_details": {"cached_tokens": -1}}
    counts = {"prompt_tokens": -1, "completion_tokens": None, **details}
    server = Server(sends(sse(*text("Hi."), {"choices": [], "usage": counts})))
    assert answers(server)[-1] == TokenUsage(0, 0, 0)


def test_the_request_contains_the_settings_and_options(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    server = Server()

    async def scenario() -> None:
        options = LlmOptions(temperature=0.0, max_output_tokens=7)
        extra: dict[str, Any] = {"top_p": 0.5, "stream_options": None, "messages": [], "seed": 1}
        async with open_client(server, api_key_file=str(file), extra_body=extra) as llm:
            await collect_reply(llm, [Message("user", "hi")], [LIGHT], options)

    asyncio.run(scenario())
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    function = {"name": "light", "description": LIGHT.description, "parameters": LIGHT.parameters}
    assert server.bodies == [
        {
            "model": "tiny",
            "messages": [{"role": "user", "content": "hi"}],
            "stream": True,
            "temperature": 0.0,
            "max_tokens": 7,
            "top_p": 0.5,
            "seed": 1,
            "tools": [{"type": "function", "function": function}],
        }
    ]


@pytest.mark.parametrize(
    ("asked", "configured", "usual", "sent"),
    [(0.0, 0.3, 0.7, 0.0), (None, 0.3, 0.7, 0.3), (None, None, 0.7, 0.7), (None, None, None, None)],
)
def test_the_default_temperature_of_an_api_has_the_lowest_precedence(
    asked: float | None, configured: float | None, usual: float | None, sent: float | None
) -> None:
    server = Server()

    async def scenario() -> None:
        async with open_client(server, temperature=configured) as llm:
            options = LlmOptions(temperature=asked, default_temperature=usual)
            await collect_reply(llm, options=options)

    asyncio.run(scenario())
    assert server.bodies[0].get("temperature") == sent


@pytest.mark.parametrize(
    ("owner", "penalty"),
    [
        ("vllm", {"repetition_penalty": 1.15}),
        ("sglang", {"repetition_penalty": 1.15}),
        ("llamacpp", {"repeat_penalty": 1.15}),
        ("openai", {}),
        (["vllm"], {}),
    ],
)
def test_a_penalty_is_sent_to_servers_that_support_one(
    owner: Any, penalty: dict[str, float]
) -> None:
    server = Server(models={"data": [{"id": "tiny", "owned_by": owner}]})

    async def scenario() -> None:
        async with open_client(server) as llm:
            options = LlmOptions(top_p=0.95, repetition_penalty=1.15)
            await collect_reply(llm, options=options)
            await collect_reply(llm)

    asyncio.run(scenario())
    usual = {"model", "messages", "stream", "stream_options", "max_tokens"}
    said = [{name: body[name] for name in body.keys() - usual} for body in server.bodies]
    assert said == [{"top_p": 0.95, **penalty}, {}]


def test_a_tool_call_can_be_required() -> None:
    server = Server()

    async def scenario() -> None:
        async with open_client(server) as llm:
            for tools in ([LIGHT], []):
                await collect_reply(llm, tools=tools, options=LlmOptions(must_call=True))

    asyncio.run(scenario())
    assert [body.get("tool_choice") for body in server.bodies] == ["required", None]


def test_a_model_without_tools_gets_none() -> None:
    server = Server()

    async def scenario() -> None:
        async with open_client(server, tools=False, temperature=0.3) as llm:
            await collect_reply(llm, tools=[LIGHT])

    asyncio.run(scenario())
    assert "tools" not in server.bodies[0]
    assert server.bodies[0]["temperature"] == 0.3


def test_calls_follow_the_text_and_thoughts_are_removed() -> None:
    server = Server(
        sends(
            sse(
                delta(reasoning_content="they want light"),
                delta(content="<thi"),
                delta(content="nk>light</think>\n\nOne"),
                delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": "light"}}]),
                delta("tool_calls", content=" moment."),
            )
        )
    )
    assert answers(server) == [
        TextDelta("One"),
        TextDelta(" moment."),
        ToolCall("c1", "light", {}),
    ]


def test_an_answer_without_streaming_is_read() -> None:
    body = b'{"choices": [{"message": {"content": "Hi."}}], "usage": {"prompt_tokens": 4}}'
    server = Server(sends(body, "application/json"))
    assert answers(server) == [TextDelta("Hi."), TokenUsage(4, 0)]


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_closing_the_answer_closes_the_connection_at_once(run: Any) -> None:
    server = Server()
    server.answers = [server.hangs_after(sse(*text("One.")[:1], done=False))]

    async def scenario() -> None:
        async with open_client(server) as llm:
            async with aclosing(llm.reply([], [], language="en")) as deltas:
                assert await anext(deltas) == TextDelta("One.")
            await server.left.wait()

    run(scenario())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_cancelling_before_the_first_token_closes_the_connection_at_once(run: Any) -> None:
    server = Server()
    asked = asyncio.Event()
    hang = server.hangs_after(b"")

    async def answer(request: Any) -> Any:
        asked.set()
        return await hang(request)

    server.answers = [answer]

    async def scenario() -> None:
        async with open_client(server) as llm:
            async with asyncio.TaskGroup() as tasks:
                turn = tasks.create_task(collect_reply(llm))
                await asked.wait()
                turn.cancel()
            await server.left.wait()

    run(scenario())


def test_an_interruption_closes_the_request() -> None:
    """A whole session is interrupted; stopping only the voice would leave the server generating."""
    words = sse(delta(content="It is one o'clock, and this will take a while, "), done=False)
    server = Server()
    server.answers = [server.hangs_after(words)]

    async def seen() -> None:
        assert not server.left.is_set()
        await server.left.wait()

    async def scenario() -> None:
        async with open_client(server, token_timeout_s=600) as llm:
            await interrupt_answer(llm, seen)

    asyncio.run(scenario())
    assert len(server.bodies) == 1


def test_turns_use_one_connection() -> None:
    server = Server()

    async def scenario() -> None:
        async with open_client(server) as llm:
            for _ in range(3):
                await collect_reply(llm)

    asyncio.run(scenario())
    assert len(server.bodies) == 3
    assert len(server.peers) == 1


def test_an_engine_works_in_a_second_event_loop() -> None:
    server = Server()

    async def scenario(llm: OpenAiLlm | None) -> OpenAiLlm:
        async with server.running():
            llm = OpenAiLlm(Settings(base_url=server.url, model="tiny", context_tokens=512))
            async with aclosing(llm):
                assert reply_text(await collect_reply(llm)) == "Hello."
            assert reply_text(await collect_reply(llm)) == "Hello."  # closed, and opened again
            await llm.aclose()
        return llm

    asyncio.run(scenario(asyncio.run(scenario(None))))


VLLM = {"data": [{"id": "a", "max_model_len": 4096}, {"id": "b", "max_model_len": 512}]}
LLAMA = {"default_generation_settings": {"n_ctx": 1024}}

SERVED: dict[str, tuple[Any, Any, dict[str, Any], tuple[str, int]]] = {
    "vLLM, the first": (VLLM, None, {}, ("a", 4096)),
    "vLLM, by name": (VLLM, None, {"model": "b"}, ("b", 512)),
    "llama.cpp": ({"data": [{"id": "a", "meta": {}}]}, LLAMA, {}, ("a", 1024)),
    "says nothing of it": ({"data": [{"id": "a"}]}, None, {}, ("a", 8192)),
    "odd properties": ({"data": [{"id": "a"}]}, ["?"], {}, ("a", 8192)),
    "configured": (VLLM, None, {"context_tokens": 600}, ("a", 600)),
    "no list": (404, None, {"model": "m"}, ("m", 8192)),
}


@pytest.mark.parametrize("case", SERVED)
def test_model_and_context_are_detected(case: str) -> None:
    models, props, settings, expected = SERVED[case]
    server = Server(models=models, props=props)

    async def scenario() -> int | None:
        async with open_client(server, **settings) as llm:
            await llm.warm("en", ())
            await collect_reply(llm)
            return llm.context_tokens

    assert (asyncio.run(scenario()), server.bodies[0]["model"]) == (expected[1], expected[0])
    assert server.listings == 1


@pytest.mark.parametrize(
    ("wanted", "context", "most"), [(None, 8192, 512), (100, 8192, 100), (9000, 4096, 1024)]
)
def test_an_answer_leaves_room_for_its_prompt(wanted: int | None, context: int, most: int) -> None:
    server = Server()

    async def scenario() -> None:
        async with open_client(server, context_tokens=context) as llm:
            await collect_reply(llm, options=LlmOptions(max_output_tokens=wanted))

    asyncio.run(scenario())
    assert server.bodies[0]["max_tokens"] == most


def test_responses_of_a_loading_server_are_not_cached() -> None:
    """llama.cpp answers 503 to everything while it loads."""
    server = Server(models=503, props=503)

    async def scenario() -> None:
        async with open_client(server, model="a") as llm:
            await llm.warm("en", ())
            assert llm.context_tokens == 8192
            server.models = {"data": [{"id": "a"}]}
            await llm.warm("en", ())
            assert llm.context_tokens == 8192
            server.props = LLAMA
            await collect_reply(llm)
            assert llm.context_tokens == 1024
            await collect_reply(llm)
            assert server.listings == 3

    asyncio.run(scenario())


@pytest.mark.parametrize("models", [404, {"data": []}, {"data": 7}, ["?"], {"data": [{"id": 7}]}])
def test_a_server_without_a_model_list_needs_a_configured_model(models: Any) -> None:
    with pytest.raises(EngineError, match="model"):
        answers(Server(models=models))


GOOD = sends(sse(*text("Good.")))


def test_another_model_is_found_after_the_first_is_gone() -> None:
    server = Server(refuses(404, {"error": {"message": "no model tiny"}}), GOOD)

    async def scenario() -> str:
        async with open_client(server) as llm:
            with pytest.raises(EngineError, match="no model tiny"):
                await collect_reply(llm)
            server.models = {"data": [{"id": "other"}]}
            return reply_text(await collect_reply(llm))

    assert asyncio.run(scenario()) == "Good."
    assert [body["model"] for body in server.bodies] == ["tiny", "other"]
