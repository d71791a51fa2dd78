"""A second client of a call: it hears all, may act, and its leaving costs the call nothing."""

import json
from typing import Any

import pytest
from aiohttp import ClientWebSocketResponse, WSMsgType, WSServerHandshakeError

from core.queues import Outbox
from signaling.realtime.aside import MAX_ASIDES
from signaling.realtime.connection import Connection
from tests.signaling.callers import talking
from tests.signaling.fakes import BEGUN, Client, play
from tests.signaling.servers import Server, against

ITEM = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}


async def until(ws: ClientWebSocketResponse, kind: str) -> list[dict[str, Any]]:
    seen: list[dict[str, Any]] = []
    while not seen or seen[-1]["type"] != kind:
        seen.append(await ws.receive_json())
    return seen


def test_a_sideband_follows_and_steers_a_call() -> None:
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
            caller.send(type="response.create")  # the aside has left
            seen = await caller.expect("response.done")
            assert not [event for event in seen if event["type"] == "error"]
            async with server.client.ws_connect(path) as ws:
                await until(ws, "conversation.created")
                caller.peer.stop()
                assert (await ws.receive()).type in (WSMsgType.CLOSE, WSMsgType.CLOSED)

    against(scene)


def test_only_a_call_can_be_followed_and_by_a_few() -> None:
    async def scene(server: Server) -> None:
        with pytest.raises(WSServerHandshakeError) as caught:
            await server.client.ws_connect("/v1/realtime?call_id=rtc_none")
        assert caught.value.status == 404
        async with talking(server) as caller:
            path = f"/v1/realtime?call_id={caller.call_id}"
            asides = [await server.client.ws_connect(path) for _ in range(MAX_ASIDES)]
            with pytest.raises(WSServerHandshakeError) as caught:
                await server.client.ws_connect(path)
            assert caught.value.status == 400
            for ws in asides:
                await ws.close()

    against(scene)


def test_an_aside_that_lags_is_cut_off_and_nobody_else() -> None:
    client = Client()
    slow: Outbox[str] = Outbox(2)

    async def scene(connection: Connection) -> None:
        connection.join(slow)
        for _ in range(3):
            await connection.receive(
                json.dumps({"type": "session.update", "session": {"type": "realtime"}})
            )
        connection.close()

    play(client, scene)
    assert slow.overflowed
    assert client.types == [*BEGUN, *["session.updated"] * 3]
