"""Chat requests: the assistant, raw models, streams, limits, and clients that leave."""

import asyncio
import json
from time import perf_counter
from typing import Any

import pytest

from core.access.named_key import CALLER_KEY, NamedKey
from serving.scheduling.llm_slots import SlotHolder
from tests.engines.llm.openai.completions_server import Server as Upstream
from tests.engines.llm.openai.completions_server import refuses, sends, sse, text
from tests.pipeline.fakes import EchoLlm, World
from tests.server.http.harness import error_of
from tests.web.openai.chat.harness import CHAT, HI, RESPONSES, Server, against, against_upstream
from web.openai.chat import models
from web.openai.chat.fields import MAX_SCHEMA_BYTES

pytestmark = pytest.mark.live

NOTE = {
    "type": "function",
    "function": {"name": "note", "parameters": {"type": "object", "properties": {}}},
}
ABORT_S = 0.5
"Longest time from the client's end to the end of the work, by our own specification."


async def until(holds: Any) -> None:
    while not holds():  # noqa: ASYNC110 - the server tells nobody
        await asyncio.sleep(0.01)


async def events_of(response: Any) -> list[Any]:
    lines = (await response.text()).split("\n\n")
    data = [line.partition("data: ")[2] for line in lines if line]
    return [one if one == "[DONE]" else json.loads(one) for one in data]


def test_the_assistant_runs_its_own_tools_and_returns_those_of_the_client() -> None:
    world = World()

    async def scene(server: Server) -> None:
        response = await server.post(messages=[{"role": "user", "content": "four"}], tools=[NOTE])
        body = await response.json()
        assert body["choices"][0]["message"]["content"].strip() == "you said it is 4."
        assert body["choices"][0]["finish_reason"] == "stop"
        assert body["model"] == "assistant"
        marks = [
            response.headers[f"x-earshot-{one}-ms"] for one in ("queue", "first-token", "total")
        ]
        assert [float(one) for one in marks] == sorted(map(float, marks))
        assert {tool.name for tool in world.llm.tools_asked[0]} == {"add", "note"}
        assert [one.text for one in world.llm.asked[0]] == ["Be brief.", "four"]
        # A client that declares `add` runs it itself.
        mine = {**NOTE, "function": {**NOTE["function"], "name": "add"}}  # type: ignore[dict-item]
        response = await server.post(messages=[{"role": "user", "content": "four"}], tools=[mine])
        (choice,) = (await response.json())["choices"]
        assert choice["finish_reason"] == "tool_calls"
        (call,) = choice["message"]["tool_calls"]
        assert json.loads(call["function"]["arguments"]) == {"a": 2, "b": 2}

    against(scene, world)


def test_another_name_is_the_model_itself_without_tools_and_instructions() -> None:
    world = World()

    async def scene(server: Server) -> None:
        for name in ("echo", "default", "gpt-4o"):
            response = await server.post(model=name)
            assert (await response.json())["model"] == name
        assert [[one.text for one in asked] for asked in world.llm.asked] == [["hi there"]] * 3
        assert world.llm.tools_asked == [()] * 3
        response = await server.post(model="parrot")
        assert (response.status, (await error_of(response))["code"]) == (404, "model_not_found")

    against(scene, world)


def test_a_stream_has_the_same_text_and_ends_with_usage() -> None:
    async def scene(server: Server) -> None:
        whole = (await (await server.post(model="echo")).json())["choices"][0]["message"]["content"]
        response = await server.post(
            model="echo", stream=True, stream_options={"include_usage": True}
        )
        *chunks, usage, done = await events_of(response)
        assert "".join(one["choices"][0]["delta"].get("content", "") for one in chunks) == whole
        assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
        assert (usage["choices"], done) == ([], "[DONE]")
        assert set(usage["usage"]) >= {"prompt_tokens", "completion_tokens", "total_tokens"}
        response = await server.post(model="echo", stop=[" hi", "never"])
        assert (await response.json())["choices"][0]["message"]["content"] == "you said"

    against(scene)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"seed": 1}, "seed"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
    ],
)
def test_what_the_engine_cannot_do_is_refused_by_name(fields: Any, param: str) -> None:
    async def scene(server: Server) -> None:
        for model in ("assistant", "echo"):
            error = await error_of(await server.post(model=model, **fields))
            assert (error["code"], error["param"]) == ("unsupported_parameter", param)

    against(scene)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ({"type": "lamp"}, "not a JSON Schema: the keyword at type has a wrong value"),
        ({"description": "x" * MAX_SCHEMA_BYTES}, f"the limit is {MAX_SCHEMA_BYTES}"),
        ({"not": {}, "name": "a b"}, "the name of a schema has 1 to 64 letters"),
    ],
)
def test_a_form_that_is_none_is_refused(schema: Any, why: str) -> None:
    async def scene(server: Server) -> None:
        named = {"name": schema.pop("name", "light"), "schema": schema}
        form = {"type": "json_schema", "json_schema": named}
        response = await server.post(response_format=form)
        error = await error_of(response)
        assert (response.status, error["code"]) == (400, "invalid_value")
        assert why in error["message"]

    against_upstream(scene, Upstream())


def test_an_answer_without_the_form_is_an_error_also_in_a_stream() -> None:
    upstream = Upstream(sends(sse(*text("It is on."))))
    form = {"type": "json_object"}

    async def scene(server: Server) -> None:
        response = await server.post(response_format=form)
        error = await error_of(response)
        assert (response.status, error["code"]) == (502, "answer_format_broken")
        *_, last = await events_of(await server.post(response_format=form, stream=True))
        assert last["error"]["code"] == "answer_format_broken"

    against_upstream(scene, upstream)


def test_a_model_server_gets_the_request_as_it_is() -> None:
    reply = {"id": "x", "choices": [{"index": 0, "message": {"content": "1"}}], "more": [1]}
    upstream = Upstream(
        sends(json.dumps(reply).encode(), "application/json"), sends(sse(*text("One.", " Two.")))
    )

    async def scene(server: Server) -> None:
        asked: dict[str, Any] = {"seed": 3, "n": 2, "logprobs": True, "my_option": {"a": 1}}
        response = await server.post(model="openai", **asked)
        assert await response.json() == reply
        sent = upstream.bodies[0]
        assert {name: sent[name] for name in asked} == asked
        assert (sent["model"], sent["messages"]) == ("tiny", list(HI))
        assert "max_tokens" not in sent
        response = await server.post(model="openai", stream=True)
        *chunks, done = await events_of(response)
        assert (chunks, done) == (text("One.", " Two."), "[DONE]")

    against_upstream(scene, upstream)


def test_refusals_of_a_model_server_are_the_clients_errors_without_its_words() -> None:
    limit = "This model's maximum context length is 64 tokens, you sent 99: hi there"
    upstream = Upstream(
        refuses(400, {"error": {"message": limit}}),
        refuses(400, {"error": {"message": "best_of is odd"}}),
        refuses(500, {"error": {"message": "broken"}}),
    )

    async def scene(server: Server) -> None:
        response = await server.post(model="openai")
        error = await error_of(response)
        assert (response.status, error["code"]) == (400, "context_length_exceeded")
        assert "64" in error["message"]
        assert "99" in error["message"]
        assert "hi there" not in error["message"]
        response = await server.post(model="openai")
        assert (response.status, (await error_of(response))["code"]) == (400, "refused_by_model")
        response = await server.post(model="openai")
        assert response.status == 502

    against_upstream(scene, upstream)


@pytest.mark.parametrize("path", [CHAT, RESPONSES])
def test_a_client_that_leaves_ends_the_work_and_frees_the_slot(path: str) -> None:
    upstream = Upstream()
    upstream.answers = [upstream.hangs_after(sse(*text("One.")[:1], done=False))]

    async def scene(server: Server) -> None:
        slots = server.services.drafts.slots(server.llm)
        more = {} if path == CHAT else {"input": "hi"}
        response = await server.post(path, model="openai", stream=True, **more)
        await response.content.readany()
        assert len(slots._holders) == 1
        began = perf_counter()
        response.close()
        await upstream.left.wait()
        await until(lambda: not slots._holders)
        assert perf_counter() - began < ABORT_S

    against_upstream(scene, upstream)


def test_requests_wait_behind_spoken_turns_and_give_their_slot_to_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(models, "QUEUE_WAIT_S", 0.2)

    class SmallLlm(EchoLlm):
        max_concurrency = 1

    async def scene(server: Server) -> None:
        slots = server.services.drafts.slots(server.llm)
        async with slots.take(SlotHolder()):
            response = await server.post(model="echo")
            assert (response.status, response.headers["Retry-After"]) == (429, "2")
            assert (await error_of(response))["code"] == "too_many_requests"
        asked = asyncio.ensure_future(server.post(model="echo"))
        await until(lambda: slots._holders)
        async with slots.take(SlotHolder()):
            assert (await asked).status == 429, "the spoken turn has its slot"
        assert (await server.post(model="echo")).status == 200

    against(scene, World(llm=SmallLlm(word_s=0.3)))


def test_a_draining_server_refuses_and_finishes_what_is_under_way() -> None:
    async def scene(server: Server) -> None:
        asked = asyncio.ensure_future(server.post(model="echo"))
        await until(lambda: server.door._limit._places.taken)
        draining = asyncio.ensure_future(server.door._limit.drain())
        await asyncio.sleep(0)
        refused = await server.post(model="echo")
        assert (refused.status, (await error_of(refused))["code"]) == (503, "draining")
        assert (await asked).status == 200
        await draining

    against(scene)


def test_a_raw_model_needs_the_scope_models() -> None:
    async def scene(server: Server) -> None:
        token = CALLER_KEY.set(NamedKey("1", "ada", ("talk",)))
        try:
            assert server.door.models.find("assistant").llm is None
            with pytest.raises(Exception, match="scope 'models'"):
                server.door.models.find("echo")
            CALLER_KEY.set(NamedKey("1", "ada", ("talk", "models")))
            assert server.door.models.find("echo").llm is server.llm
        finally:
            CALLER_KEY.reset(token)

    against(scene)
