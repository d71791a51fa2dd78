"""GPT-Live over WebRTC: the session in the request, the sound on the track."""

import asyncio
from typing import Any

import pytest

from tests.signaling.live.clients import PATH, STOCK
from tests.signaling.realtime.servers import Server, against
from tests.signaling.realtime.webrtc_client import Caller

pytestmark = pytest.mark.live


def test_a_call_answers_and_is_hung_up() -> None:
    async def scene(server: Server) -> None:
        caller = Caller()
        body = {
            "session": {"model": "gpt-live-1"},
            "transport": {"type": "webrtc", "sdp": await caller.peer.offer()},
        }
        response = await server.client.post(PATH, json=body)
        assert response.status == 201, await response.text()
        answer = await response.json()
        await caller.peer.accept(answer["transport"]["sdp"])
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(caller.peer.run())
            started = (await caller.expect("session.started"))[-1]
            STOCK.validate_python(started)
            assert started["session"]["id"] == answer["session"]["id"]
            assert "format" not in started["session"]["audio"]
            caller.send(type="session.commentary.append", content="hello", delegation_id=None)
            await caller.expect("session.output_transcript.delta")
            await caller.heard.wait()
            caller.send(type="session.input_audio.append", audio="AAAA")
            error = (await caller.expect("error"))[-1]["error"]
            assert error["code"] == "unsupported_event"
            path = f"{PATH}/{answer['session']['id']}/hangup"
            assert (await server.client.post(path)).status == 200
            await running

    against(scene)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"session": {"model": "m", "x": 1}, "transport": {"sdp": ""}}, "session.x"),
        ({"session": {"model": "m"}}, "transport"),
        (
            {
                "session": {"model": "m", "audio": {"format": {"type": "audio/pcmu"}}},
                "transport": {"sdp": ""},
            },
            "session.audio.format",
        ),
    ],
)
def test_a_wrong_request_is_named(body: Any, param: str) -> None:
    async def scene(server: Server) -> None:
        response = await server.client.post(PATH, json=body)
        assert response.status == 400
        assert (await response.json())["error"]["param"] == param

    against(scene)
