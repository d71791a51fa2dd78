"""GPT-Live over WebRTC: the session in the request, the sound on the track."""

from typing import Any

import pytest

from tests.signaling.live.clients import PATH, calling
from tests.signaling.realtime.servers import Server, against

pytestmark = pytest.mark.live


def test_a_call_answers_and_is_hung_up() -> None:
    async def scene(server: Server) -> None:
        async with calling(server) as caller:
            caller.send(type="session.commentary.append", content="hello", delegation_id=None)
            await caller.expect("session.output_transcript.delta")
            await caller.heard.wait()
            caller.send(type="session.input_audio.append", audio="AAAA")
            error = (await caller.expect("error"))[-1]["error"]
            assert error["code"] == "unsupported_event"
            path = f"{PATH}/{caller.call_id}/hangup"
            assert (await server.client.post(path)).status == 200

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
