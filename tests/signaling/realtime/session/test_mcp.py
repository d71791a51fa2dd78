"""MCP servers that a client names: their tools are listed, called, approved, chosen and refused; in
real processes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from openai.types.realtime import RealtimeServerEvent
from pydantic import TypeAdapter

from core.http.fetch_policy import HostAllowlist
from pipeline.shared.mcp_servers import ClientMcpPolicy
from tests.pipeline.tools.mcp.kitchens import Kitchen
from tests.signaling.realtime.session.mcp_servers import Event, House, cooking, in_house, kinds, of

pytestmark = pytest.mark.live

EVENTS: TypeAdapter[Any] = TypeAdapter(RealtimeServerEvent)
WEIGH = 'call weigh {"item": "flour"}'


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kitchen]:
    with cooking(tmp_path_factory.mktemp("kitchen")) as opened:
        yield opened


@pytest.fixture(autouse=True)
def _cold(kitchen: Kitchen) -> None:
    (kitchen.folder / "cooking").unlink(missing_ok=True)


def as_hosted(events: list[Event]) -> None:
    """Checks that each event has the type of the official package, with every field that it
    needs."""
    for event in events:
        assert EVENTS.validate_python(event).type == event["type"]


def test_tools_of_a_clients_server_are_listed_and_called_within_the_response(
    kitchen: Kitchen,
) -> None:
    async def scene(house: House) -> None:
        told = await house.given(require_approval="never")
        assert kinds(told) == [
            "conversation.item.added",
            "mcp_list_tools.in_progress",
            "mcp_list_tools.completed",
            "conversation.item.done",
        ]
        item = told[-1]["item"]
        assert (item["type"], item["server_label"]) == ("mcp_list_tools", "kitchen")
        [weigh] = [tool for tool in item["tools"] if tool["name"] == "weigh"]
        assert weigh["input_schema"]["properties"]["item"]["type"] == "string"
        assert weigh["annotations"] == {"readOnlyHint": True}
        assert "oven.burn" in {tool["name"] for tool in item["tools"]}, "by the server's own names"
        assert told[0]["item"]["tools"] == []

        answer = await house.ask(WEIGH)
        assert kinds(answer) == [
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.mcp_call_arguments.delta",
            "response.mcp_call_arguments.done",
            "response.mcp_call.in_progress",
            "response.mcp_call.completed",
            "response.output_item.done",
            "conversation.item.done",
            "response.output_item.added",
            "conversation.item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
        ]
        call, said = answer[-1]["response"]["output"]
        assert {**call, "id": ""} == {
            "id": "",
            "object": "realtime.item",
            "type": "mcp_call",
            "server_label": "kitchen",
            "name": "weigh",
            "arguments": '{"item": "flour"}',
            "approval_request_id": None,
            "output": '{"grams": 5}',
            "error": None,
        }
        assert json.loads(said["content"][0]["text"]) == {"grams": 5}
        deltas = of("response.mcp_call_arguments.delta", answer)
        assert "".join(event["delta"] for event in deltas) == '{"item": "flour"}'
        as_hosted([*told, *answer])
        await house.ask("thanks")
        seen = [m.text for m in house.llm.asked[-1] if m.role == "tool"]
        assert seen == ['{"grams": 5}'], "the next answer knows of it"

    in_house(kitchen, scene)


def test_a_call_that_fails_is_reported_with_its_error(kitchen: Kitchen) -> None:
    async def scene(house: House) -> None:
        await house.given(require_approval="never")
        answer = await house.ask("call oven_burn {}; call weigh {}")
        assert len(of("response.mcp_call.failed", answer)) == 2
        assert of("response.mcp_call.completed", answer) == []
        burned, wrong = (one["error"] for one in answer[-1]["response"]["output"][:2])
        assert burned["type"] == "tool_execution_error"
        assert "it burned" in burned["message"]
        assert "'item' is a required property" in wrong["message"]
        as_hosted(answer)

    in_house(kitchen, scene)


def test_by_default_the_client_must_approve_each_call(kitchen: Kitchen) -> None:
    async def scene(house: House) -> None:
        await house.given()
        answer = await house.ask('call cook {"dish": "soup", "seconds": 0}')
        assert kinds(answer) == [
            "response.created",
            "response.output_item.added",
            "conversation.item.added",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
        ]
        [request] = answer[-1]["response"]["output"]
        assert (request["type"], request["name"]) == ("mcp_approval_request", "cook")
        assert json.loads(request["arguments"]) == {"dish": "soup", "seconds": 0}
        assert not house.kitchen.has("cooking")

        await house.decide(request["id"], approve=True)
        going_on = await house.until("response.done")
        assert kinds(going_on)[:3] == [
            "conversation.item.added",
            "conversation.item.done",
            "response.created",
        ]
        call, said = going_on[-1]["response"]["output"]
        assert (call["approval_request_id"], call["output"]) == (
            request["id"],
            "soup is done",
        )
        assert "soup is done" in said["content"][0]["text"]
        as_hosted([*answer, *going_on])
        await house.decide(request["id"], approve=True)
        [again] = await house.until("error")
        assert again["error"]["code"] == "mcp_approval_not_pending"
        await house.ask("thanks")
        assert sum(len(m.tool_calls) for m in house.llm.asked[-1]) == 1, "it is seen once"

    in_house(kitchen, scene)


def test_a_refused_call_is_not_made_and_the_model_learns_the_reason(kitchen: Kitchen) -> None:
    async def scene(house: House) -> None:
        await house.given()
        answer = await house.ask(f'{WEIGH}; call cook {{"dish": "soup", "seconds": 0}}')
        weigh, cook = answer[-1]["response"]["output"]
        await house.decide(cook["id"], approve=False, reason="too late to eat")
        await house.until("conversation.item.done")
        await house.decide(weigh["id"], approve=True)
        going_on = await house.until("response.done")
        assert [one["type"] for one in going_on[-1]["response"]["output"]] == [
            "mcp_call",
            "message",
        ]
        assert not house.kitchen.has("cooking")
        results = [m.text for m in house.llm.asked[-1] if m.role == "tool"]
        assert len(results) == 2
        assert "too late to eat" in results[0]
        assert json.loads(results[0])["error"] == "not_approved"
        await house.ask("thanks")
        again = [m.text for m in house.llm.asked[-1] if m.role == "tool"]
        assert sorted(again) == sorted(results), "also in the answers after that"

    in_house(kitchen, scene)


def test_require_approval_decides_which_calls_need_approval(kitchen: Kitchen) -> None:
    wanted: list[tuple[Any, bool]] = [
        ({"never": {"tool_names": ["weigh"]}}, False),
        ({"never": {"read_only": True}}, False),
        ({"always": {"tool_names": ["weigh"]}, "never": {"read_only": True}}, True),
        ({"never": {"tool_names": ["cook"]}}, True),
        ({}, True),
        ("always", True),
        ("never", False),
        (None, True),
    ]

    async def scene(house: House) -> None:
        await house.given()
        for require_approval, asks in wanted:
            await house.update(tools=[house.tool(require_approval=require_approval)])
            answer = await house.ask(WEIGH)
            first = answer[-1]["response"]["output"][0]["type"]
            assert first == ("mcp_approval_request" if asks else "mcp_call"), require_approval

    in_house(kitchen, scene)


def test_only_allowed_tools_are_offered_and_one_can_be_required(kitchen: Kitchen) -> None:
    async def scene(house: House) -> None:
        told = await house.given(
            require_approval="never", allowed_tools=["weigh", "oven.burn"], server_description="x"
        )
        assert {tool["name"] for tool in told[-1]["item"]["tools"]} == {"weigh", "oven.burn"}
        await house.ask("hello")
        assert house.llm.offered[-1] == ["add", "weigh", "oven_burn"]
        choice = {"type": "mcp", "server_label": "kitchen", "name": "oven.burn"}
        await house.ask("hello", tool_choice=choice)
        assert (house.llm.offered[-1], house.llm.must_call[-1]) == (["oven_burn"], True)
        await house.ask("hello", tool_choice={"type": "mcp", "server_label": "kitchen"})
        assert house.llm.offered[-1] == ["weigh", "oven_burn"]
        answer = await house.ask("hello", tool_choice={**choice, "name": "fry"})
        details = answer[-1]["response"]["status_details"]
        assert details["error"]["code"] == "no_such_tool"
        shown = await house.update(tools=[house.tool(allowed_tools={"read_only": True})])
        assert shown["tools"][0]["allowed_tools"] == {"read_only": True}
        assert shown["tools"][0]["require_approval"] == "always"
        await house.ask("hello")
        assert house.llm.offered[-1][:2] == ["add", "weigh"] or house.llm.offered[-1] == ["add"]

    in_house(kitchen, scene)


def test_a_response_can_name_its_own_server_and_waits_for_its_tools(kitchen: Kitchen) -> None:
    async def scene(house: House) -> None:
        await house.update(tools=[])
        own = house.tool(require_approval="never")
        answer = await house.ask(WEIGH, tools=[own])
        assert "mcp_list_tools.completed" in kinds(answer)
        assert [one["type"] for one in answer[-1]["response"]["output"]] == ["mcp_call", "message"]
        again = await house.ask(WEIGH, tools=[own])
        assert "mcp_list_tools.in_progress" not in kinds(again), "it is still connected"
        await house.ask("hello")
        assert house.llm.offered[-1] == ["add"], "the session has none"
        await house.write("hello")
        label = {"type": "mcp", "server_label": "kitchen"}
        await house.ws.send_json({"type": "response.create", "response": {"tools": [label]}})
        [refused] = await house.until("error")
        assert refused["error"]["code"] == "mcp_server_not_found"
        assert refused["error"]["param"] == "response.tools[0].server_label"
        await house.given(require_approval="never")
        await house.ask("hello", tools=[label])
        assert "weigh" in house.llm.offered[-1]

    in_house(kitchen, scene)


def test_a_response_can_override_the_options_of_a_session_server(kitchen: Kitchen) -> None:
    async def scene(house: House) -> None:
        await house.given(require_approval="never")
        label = {"type": "mcp", "server_label": "kitchen"}
        asking = {**label, "require_approval": "always"}
        answer = await house.ask(WEIGH, tools=[asking])
        [asked] = answer[-1]["response"]["output"]
        assert asked["type"] == "mcp_approval_request"
        await house.ask("hello", tools=[{**label, "allowed_tools": ["cook"]}])
        assert house.llm.offered[-1] == ["add", "cook"]
        answer = await house.ask(WEIGH, tools=[label])
        assert answer[-1]["response"]["output"][0]["type"] == "mcp_call", "as the session has it"

    in_house(kitchen, scene)


def test_a_client_learns_how_many_tools_exceed_the_limit(
    kitchen: Kitchen, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("session_servers", "tool"):
        monkeypatch.setattr(f"pipeline.tools.mcp.{module}.MAX_TOOLS", 1)

    async def scene(house: House) -> None:
        [*_, done] = await house.given()
        count = len(done["item"]["tools"])
        [error] = [one["error"] for one in await house.until("error")]
        assert error["code"] == "too_many_mcp_tools"
        assert error["message"] == (
            f"The MCP servers have {count} tools, and a model is offered 1 at most: "
            f"{count - 1} are left out. Name the useful ones in allowed_tools."
        )
        await house.ask("hello")
        assert [name for name in house.llm.offered[-1] if name != "add"] == ["weigh"]
        await house.given(allowed_tools=["weigh"])
        assert of("error", await house.ask("hello")) == []

    in_house(kitchen, scene)


def test_as_many_servers_as_allowed_are_all_offered(kitchen: Kitchen) -> None:
    async def scene(house: House) -> None:
        await house.given(require_approval="never", allowed_tools=["weigh"])
        wanted = {"b": "cook", "c": "oven.burn"}
        own = [
            house.tool(server_label=label, allowed_tools=[name], require_approval="never")
            for label, name in wanted.items()
        ]
        await house.ask("hello", tools=own[:1])
        await house.ask("hello", tools=own[1:])
        await house.write("hello")
        await house.ws.send_json({"type": "response.create", "response": {"tools": own}})
        [refused] = await house.until("error")
        assert refused["error"]["code"] == "too_many_mcp_servers"
        assert refused["error"]["param"] == "response.tools"
        await house.update(tools=[])
        await house.ask("hello", tools=own)
        assert set(house.llm.offered[-1]) == {"add", "cook", "oven_burn"}

    in_house(
        kitchen, scene, ClientMcpPolicy(HostAllowlist([f"127.0.0.1:{kitchen.port}"]), max_servers=2)
    )


def test_out_of_band_no_tool_that_needs_approval_is_offered(
    kitchen: Kitchen,
) -> None:
    async def scene(house: House) -> None:
        await house.given(require_approval={"never": {"read_only": True}})
        answer = await house.ask(WEIGH, conversation="none")
        assert house.llm.offered[0] == ["add", "weigh"]
        assert "conversation.item.added" not in kinds(answer)
        assert answer[-1]["response"]["output"][0]["output"] == '{"grams": 5}'

    in_house(kitchen, scene)


def test_a_running_call_can_be_retrieved_and_is_interrupted_with_its_response(
    kitchen: Kitchen,
) -> None:
    async def scene(house: House) -> None:
        await house.given(require_approval="never")
        await house.write('call cook {"dish": "stew", "seconds": 60}')
        await house.ws.send_json({"type": "response.create"})
        began = (await house.until("response.mcp_call.in_progress"))[-1]
        retrieve = {"type": "conversation.item.retrieve", "item_id": began["item_id"]}
        await house.ws.send_json(retrieve)
        item = (await house.until("conversation.item.retrieved"))[-1]["item"]
        assert (item["type"], item["output"], item["error"]) == ("mcp_call", None, None)
        await house.ws.send_json({"type": "response.cancel"})
        ended = await house.until("response.done")
        assert kinds(ended) == [
            "response.mcp_call.failed",
            "response.output_item.done",
            "conversation.item.done",
            "response.done",
        ]
        assert ended[-1]["response"]["status"] == "cancelled"
        await house.ask("what happened?")
        [result] = [m.text for m in house.llm.asked[-1] if m.role == "tool"]
        assert json.loads(result)["error"] == "interrupted"

    in_house(kitchen, scene)
