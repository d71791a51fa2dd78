"""A sideband is a second client of a call: it gets all events, may act, and can leave without
effect on the call."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, WSServerHandshakeError

from core.conversation.events import HypothesisChanged, TurnTimeline, WakeStateChanged
from core.net.connection_stats import ConnectionStats
from signaling.realtime.connection import RealtimeConnection
from signaling.realtime.session.settings import SessionConfiguration
from signaling.realtime.transports.sideband import MAX_SIDEBANDS
from signaling.realtime.transports.sideband_outbox import SidebandOutbox
from tests.signaling.realtime.fakes import BEGUN, Client, CountingHome, play
from tests.signaling.realtime.servers import Server, against
from tests.signaling.realtime.webrtc_client import talking

pytestmark = pytest.mark.live

ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


async def until(ws: ClientWebSocketResponse, kind: str) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    while not seen or seen[-1]["type"] != kind:
        seen.append(await ws.receive_json())
    return seen


def test_a_sideband_gets_the_events_of_a_call_and_controls_it() -> None:
    async def scene(server: Server) -> None:
        async with talking(server) as caller:
            path = f"/v1/realtime?call_id={caller.call_id}"
            async with server.client.ws_connect(path) as ws:
                assert (await ws.receive_json())["type"] == "session.created"
                tool = {"type": "function", "name": "f"}
                session = {"type": "realtime", "tools": [tool], "output_modalities": ["text"]}
                await ws.send_json({"type": "session.update", "session": session})
                assert (await until(ws, "session.updated"))[-1]["session"]["tools"]
                assert (await caller.expect("session.updated"))[-1]["session"]["tools"]
                caller.send(type="conversation.item.create", item=ITEM)
                caller.send(type="response.create")
                for told in (
                    await until(ws, "response.done"),
                    await caller.expect("response.done"),
                ):
                    assert told[-1]["response"]["status"] == "completed"
                await ws.send_json({"type": "nonsense", "event_id": "mine"})
                error = (await until(ws, "error"))[-1]
                assert error["error"]["event_id"] == "mine"
            caller.send(type="response.create")  # the sideband has left
            seen = await caller.expect("response.done")
            assert not [event for event in seen if event["type"] == "error"]
            async with server.client.ws_connect(path) as ws:
                await until(ws, "conversation.created")
                caller.peer.stop()
                assert (await ws.receive()).type in (WSMsgType.CLOSE, WSMsgType.CLOSED)

    against(scene)


def test_sidebands_need_a_call_and_are_limited() -> None:
    async def scene(server: Server) -> None:
        with pytest.raises(WSServerHandshakeError) as caught:
            await server.client.ws_connect("/v1/realtime?call_id=rtc_none")
        assert caught.value.status == 404
        async with talking(server) as caller:
            path = f"/v1/realtime?call_id={caller.call_id}"
            asides = [await server.client.ws_connect(path) for _ in range(MAX_SIDEBANDS)]
            with pytest.raises(WSServerHandshakeError) as caught:
                await server.client.ws_connect(path)
            assert caught.value.status == 400
            for ws in asides:
                await ws.close()

    against(scene)


def test_a_slow_sideband_is_disconnected_alone() -> None:
    client = Client()
    slow = SidebandOutbox(2)

    async def scene(connection: RealtimeConnection) -> None:
        connection.join(slow)
        for _ in range(3):
            await connection.receive(
                json.dumps({"type": "session.update", "session": {"type": "realtime"}})
            )
        connection.close()

    play(client, scene)
    assert slow.overflowed
    assert client.types == [*BEGUN, *["session.updated"] * 3]


def told_by(aside: SidebandOutbox) -> list[dict[str, Any]]:
    """Returns all events of a closed sideband."""

    async def take() -> list[dict[str, Any]]:
        return [json.loads(text) async for text in aside]

    return asyncio.run(take())


def test_a_sideband_does_not_get_the_earshot_events_that_the_caller_included() -> None:
    client, aside = Client(), SidebandOutbox()

    async def scene(connection: RealtimeConnection) -> None:
        connection.join(aside)
        client.session.events.put(WakeStateChanged("okay_nabu", "Okay Nabu", is_awake=True))
        client.session.events.put(HypothesisChanged("item_1", "turn", "on", audio_ms=100))
        client.session.events.put(TurnTimeline("turn_1", None, None, "rejected", (), None))
        await connection.send_quality(ConnectionStats("webrtc", 12.3))
        await asyncio.sleep(1)
        connection.close()

    own = ("hypothesis", "turn", "home", "connection", "wake")
    terms = SessionConfiguration(include=frozenset(f"earshot.{name}" for name in own))
    play(client, scene, terms=terms, home=CountingHome())
    assert {f"earshot.{name}" for name in own} <= set(client.types)
    assert [event["type"] for event in told_by(aside)] == BEGUN


def test_a_sideband_can_speak_the_beta_in_a_call_that_does_not() -> None:
    async def scene(server: Server) -> None:
        async with talking(server) as caller:
            path = f"/v1/realtime?call_id={caller.call_id}"
            headers = {"OpenAI-Beta": "realtime=v1"}
            async with server.client.ws_connect(path, headers=headers) as ws:
                begun = await until(ws, "conversation.created")
                assert begun[0]["session"]["modalities"] == ["audio", "text"]
                await ws.send_json({"type": "session.update", "session": {"modalities": ["text"]}})
                (updated,) = await until(ws, "session.updated")
                assert updated["session"]["modalities"] == ["text"]
                own = (await caller.expect("session.updated"))[-1]["session"]
                assert own["output_modalities"] == ["text"]
                caller.send(type="conversation.item.create", item=ITEM)
                caller.send(type="response.create")
                kinds = {event["type"] for event in await until(ws, "response.done")}
                assert {"conversation.item.created", "response.text.delta"} <= kinds
                assert not {"conversation.item.added", "conversation.item.done"} & kinds
                wrong = {"type": "session.update", "session": {"voice": 1}}
                await ws.send_json(wrong)
                assert (await until(ws, "error"))[-1]["error"]["param"] == "session.voice"

    against(scene)


def test_a_binary_frame_of_a_sideband_is_an_error_and_the_sideband_stays() -> None:
    async def scene(server: Server) -> None:
        async with talking(server) as caller:
            path = f"/v1/realtime?call_id={caller.call_id}"
            async with server.client.ws_connect(path) as ws:
                await ws.send_bytes(b"\0\0")
                assert (await until(ws, "error"))[-1]["error"]["code"] == "invalid_json"
                update = {"type": "session.update", "session": {"type": "realtime"}}
                await ws.send_json(update)
                await until(ws, "session.updated")

    against(scene)
