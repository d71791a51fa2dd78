"""A gateway is killed in a conversation of `earshot talk`, which goes on at another gateway."""

import argparse
import asyncio
from collections.abc import Iterator
from functools import partial
from io import StringIO
from pathlib import Path
from time import monotonic

import pytest

from bench.client.conversation import ConversationClient, TurnReport
from bench.client.http import Address
from bench.client.realtime import ClientTransport
from bench.talk.command import DEFAULT_TIMEOUT_S, Talk, Turn, TurnQueue, read_recording
from bench.talk.output import TerminalOutput
from core.conversation.ids import gateway_of
from tests.conftest import require
from tests.engines.llm.openai.completions_server import (
    Server,
    sends,
    server_in_thread,
    sse,
    text,
)
from tests.server.gateways.two_gateways import SPOKEN_HERE, TWO_GATEWAYS, client, gateways
from tests.server.process import Running, serving

pytestmark = pytest.mark.real

RECORDING = Path(__file__).parents[3] / "../shared/data/real-commands/order_000.flac"
DEADLINE_S = 240
BACK_LIMIT_S = 2.0
"Longest time from the end of a gateway until its client has a connection again."
IN_THE_UTTERANCE_S = 1.0


class Output(TerminalOutput):
    """Notes when the client is connected."""

    connected_at: list[float]

    def line(self, words: str) -> None:
        if words.startswith("connected to"):
            self.connected_at.append(monotonic())


async def kill_in_the_second_turn(server: Running, transport: ClientTransport) -> list[TurnReport]:
    """Writes a message, then says something, and kills the gateway meanwhile."""
    recording = read_recording(RECORDING)
    has_begun = asyncio.Event()

    async def say(conversation: ConversationClient) -> TurnReport:
        has_begun.set()
        return await conversation.say(recording)

    def turns() -> Iterator[Turn]:
        yield partial(ConversationClient.write, text="My name is Paula.")
        yield say

    output = Output(StringIO(), is_terminal=False)
    output.connected_at = []
    reports: list[TurnReport] = []
    options = argparse.Namespace(
        transport=transport,
        model="default",
        language=None,
        turn_detection="server_vad",
        timeout=DEFAULT_TIMEOUT_S,
        json=False,
    )
    talk = Talk(options, Address(server.url), TurnQueue(turns()), None, output, reports)
    async with asyncio.timeout(DEADLINE_S), client(server) as http, asyncio.TaskGroup() as tasks:
        tasks.create_task(talk.hold())
        await has_begun.wait()
        first = talk.conversation_id
        lost = gateway_of(first)
        assert lost is not None
        async with http.ws_connect("/v1/realtime") as one, http.ws_connect("/v1/realtime") as two:
            sessions = [(await ws.receive_json())["session"]["id"] for ws in (one, two)]
            (other,) = [
                ws
                for ws, name in zip((one, two), sessions, strict=True)
                if gateway_of(name) != lost
            ]
            await asyncio.sleep(IN_THE_UTTERANCE_S)
            killed_at = monotonic()
            gateways(server)[lost - 1].kill()
            has_begun.clear()
            await has_begun.wait()
            print(f"{transport}: back after {output.connected_at[-1] - killed_at:.2f} s")
            assert output.connected_at[-1] - killed_at <= BACK_LIMIT_S
            await other.send_json({"type": "input_audio_buffer.clear"})
            async for message in other:
                if message.json()["type"] == "input_audio_buffer.cleared":
                    break
    assert talk.conversation_id == first
    return reports


@pytest.mark.parametrize("transport", ["ws", "webrtc"])
def test_a_conversation_goes_on_when_its_gateway_is_killed(
    transport: ClientTransport, tmp_path: Path
) -> None:
    require(RECORDING.exists(), "the recordings of people are not here")
    with server_in_thread(Server(sends(sse(*text("Nice to meet you."))))) as model:
        settings = {
            **TWO_GATEWAYS,
            "EARSHOT_LLM__ENGINE": "openai",
            "EARSHOT_LLM__OPTIONS__BASE_URL": model.url,
            "EARSHOT_LLM__OPTIONS__CONTEXT_TOKENS": "32768",
        }
        with serving(tmp_path, settings=settings, recogniser=SPOKEN_HERE) as server:
            reports = asyncio.run(kill_in_the_second_turn(server, transport))
        assert [report.status for report in reports] == ["answered", "answered"]
        prompt = [(one["role"], one["content"]) for one in model.bodies[-1]["messages"]]
        assert ("user", "My name is Paula.") in prompt
        assert ("assistant", "Nice to meet you.") in prompt
        assert prompt[-1][0] == "user"
