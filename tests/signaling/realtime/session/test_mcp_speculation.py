"""MCP tools in a spoken call over WebRTC: what a draft may do before the turn is over."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from core.http.fetch_policy import HostAllowlist
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, CallDelta, LlmOptions, Message, TextDelta, ToolCall
from pipeline.shared.mcp_servers import ClientMcpPolicy
from tests.pipeline.fakes import EchoLlm
from tests.pipeline.tools.mcp.unresponsive_server import UnresponsiveServer, unresponsive
from tests.signaling.realtime.servers import Server, Setup, against
from tests.signaling.realtime.session.mcp_servers import RemoteWorld, of
from tests.signaling.realtime.webrtc_client import Caller, Event, talking
from tests.signaling.whip.servers import OpusAsr

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("talkers")]

SPEECH = 4000
"The level of a caller's speech, loud enough after any codec."

PAUSES = {"type": "server_vad", "silence_duration_ms": 1200}
"A long pause ends the turn, which leaves time for anything that a draft must not do."

GOES_ON = {"type": "semantic_vad", "eagerness": "high"}
"Speech that goes on soon after such an end continues the sentence."

SHOPS = [
    {"name": "order", "inputSchema": {"type": "object"}},
    {"name": "price", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
]
"One tool that changes something, and one that does not."

RESULT = "done"
"The result of both tools."


class ShoppingLlm(EchoLlm):
    """A model that calls one tool with the transcript, then says the result."""

    def __init__(self, tool: str) -> None:
        super().__init__()
        self.tool = tool
        self.may_call = asyncio.Event()
        self.may_call.set()
        self.has_called = asyncio.Event()
        "Set when the call is written and nothing comes after it."

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall, None]:
        self.asked.append(list(messages))
        self.tools_asked.append(tools)
        last = messages[-1]
        if last.role == "tool":
            yield TextDelta(f"The shop says {json.loads(last.text)['text']}")
            return
        await self.may_call.wait()
        yield ToolCall("call_1", self.tool, {"heard": last.text})
        self.has_called.set()


@dataclass
class Shop:
    """A client in a call, its MCP server, and the state of the turn at each call of the tool."""

    server: Server
    caller: Caller
    llm: ShoppingLlm
    stub: UnresponsiveServer
    calls: list[tuple[str, bool]] = field(default_factory=list)
    "For each call the transcript, and whether the turn was over."

    def note(self, arguments: Mapping[str, Any]) -> None:
        self.calls.append((arguments["heard"], self.drafts("used") > 0))

    def drafts(self, outcome: str) -> float:
        return self.server.world.metrics.counts.get(f"earshot_speculation:{outcome}", 0)

    async def say_one(self) -> None:
        self.caller.level = SPEECH
        await asyncio.sleep(0.5)  # of speech
        self.caller.level = 0

    async def drafted(self) -> None:
        """Waits until the model has called a tool, which is before the end of the turn."""
        await self.llm.has_called.wait()
        assert self.drafts("used") == 0

    async def answer(self) -> list[Event]:
        return await self.caller.expect("response.done")


def since_the_turn(events: Sequence[Event]) -> list[Event]:
    """Returns the events since the end of the turn; before it there must be none of a response."""
    over = [event["type"] for event in events].index("input_audio_buffer.committed")
    early = [event["type"] for event in events[:over]]
    assert not any(kind.startswith(("response.", "conversation.item.")) for kind in early), early
    return list(events[over:])


Scene = Callable[[Shop], Awaitable[Any]]


def in_shop(
    scene: Scene, tool: str = "order", approval: str = "never", detection: Event = PAUSES
) -> None:
    llm = ShoppingLlm(tool)
    policy = ClientMcpPolicy(HostAllowlist(["127.0.0.1"]))
    setup = Setup(world=RemoteWorld(asr=OpusAsr(), llm=llm, policy=policy))

    async def in_call(server: Server) -> None:
        async with unresponsive(tools=SHOPS) as stub:
            shop = {
                "type": "mcp",
                "server_label": "shop",
                "server_url": stub.url,
                "require_approval": approval,
            }
            session = {
                "type": "realtime",
                "tools": [shop],
                "audio": {"input": {"turn_detection": detection}},
            }
            async with talking(server, session) as caller:
                scene_in = Shop(server, caller, llm, stub)
                stub.on_call = scene_in.note
                told = await caller.expect("conversation.item.done")
                assert of("mcp_list_tools.completed", told)
                await scene(scene_in)
            await server.all_left()

    against(in_call, setup)


def test_a_tool_that_changes_something_waits_for_the_end_of_the_turn() -> None:
    async def scene(shop: Shop) -> None:
        await shop.say_one()
        await shop.drafted()
        events = await shop.answer()
        assert shop.calls == [("one", True)]
        assert len(shop.llm.asked) == 2, "the draft is the answer, not a second one"
        call, said = events[-1]["response"]["output"]
        assert (call["type"], call["name"], call["output"]) == ("mcp_call", "order", RESULT)
        assert said["content"][0]["transcript"] == f"The shop says {RESULT}"
        assert of("response.mcp_call.completed", since_the_turn(events))
        await shop.caller.heard.wait()

    in_shop(scene)


def test_it_is_not_called_for_an_utterance_that_continues() -> None:
    async def scene(shop: Shop) -> None:
        await shop.say_one()
        await shop.drafted()
        await shop.say_one()
        events = await shop.answer()
        assert shop.drafts("resumed") == 1
        assert shop.calls == [("one one", True)]
        assert len(of("response.created", events)) == 1
        assert len(of("response.mcp_call.in_progress", events)) == 1
        assert [m.text for m in shop.llm.asked[0]] == ["one"]

    in_shop(scene)


def test_a_read_only_tool_is_called_in_the_pause_and_reported_after_it() -> None:
    async def scene(shop: Shop) -> None:
        await shop.say_one()
        await shop.drafted()
        await shop.stub.called.wait()
        await shop.say_one()
        events = await shop.answer()
        assert shop.calls == [("one", False), ("one one", False)]
        assert len(of("response.mcp_call.completed", since_the_turn(events))) == 1
        asked = shop.llm.asked[-1]
        assert sum(m.role == "tool" for m in asked) == 1, "what was dropped is not remembered"
        await shop.caller.heard.wait()

    in_shop(scene, "price")


def test_an_approval_is_requested_only_after_the_end_of_the_turn() -> None:
    async def scene(shop: Shop) -> None:
        await shop.say_one()
        await shop.drafted()
        await shop.say_one()
        events = since_the_turn(await shop.answer())
        [wanted] = events[-1]["response"]["output"]
        assert wanted["type"] == "mcp_approval_request"
        assert json.loads(wanted["arguments"]) == {"heard": "one one"}
        assert shop.calls == []

        allowed = {"approval_request_id": wanted["id"], "approve": True}
        item = {"type": "mcp_approval_response", **allowed}
        shop.caller.send(type="conversation.item.create", item=item)
        call, said = (await shop.answer())[-1]["response"]["output"]
        assert shop.calls == [("one one", True)]
        assert (call["approval_request_id"], call["output"]) == (wanted["id"], RESULT)
        assert said["content"][0]["transcript"] == f"The shop says {RESULT}"
        await shop.caller.heard.wait()

    in_shop(scene, approval="always")


@pytest.mark.parametrize("approval", ["never", "always"])
def test_no_tool_is_called_while_an_ended_turn_may_continue(approval: str) -> None:
    async def scene(shop: Shop) -> None:
        shop.llm.may_call.clear()
        await shop.say_one()
        await shop.caller.expect("input_audio_buffer.committed")
        shop.caller.level = SPEECH
        await shop.caller.expect("input_audio_buffer.speech_started")
        shop.llm.may_call.set()
        await shop.llm.has_called.wait()
        await shop.say_one()
        first, second = await shop.answer(), await shop.answer()
        assert first[-1]["response"]["status"] == "cancelled"
        assert first[-1]["response"]["output"] == []
        kinds = [item["type"] for item in second[-1]["response"]["output"]]
        if approval == "never":
            assert (kinds, shop.calls) == (["mcp_call", "message"], [("one one", True)])
        else:
            assert (kinds, shop.calls) == (["mcp_approval_request"], [])

    in_shop(scene, approval=approval, detection=GOES_ON)
