"""A voice that was heard is fixed, over both transports."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest

from core.conversation.events import OutputAudioDelta, PlayoutStarted, SessionEvent
from signaling.realtime.connection import RealtimeConnection
from signaling.realtime.protocol.translator import Transport
from tests.signaling.realtime.fakes import Client, play

SOUND = OutputAudioDelta("resp_1", "item_a", 0, np.zeros(480, np.int16))


def update(voice: str) -> str:
    session: dict[str, Any] = {"type": "realtime", "audio": {"output": {"voice": voice}}}
    return json.dumps({"type": "session.update", "event_id": voice, "session": session})


@pytest.mark.parametrize(
    ("transport", "heard"), [("websocket", SOUND), ("webrtc", PlayoutStarted("resp_1"))]
)
def test_a_voice_can_change_until_it_is_heard(transport: Transport, heard: SessionEvent) -> None:
    client = Client()

    async def scene(connection: RealtimeConnection) -> None:
        await connection.receive(update("anna"))
        await connection.receive(update("berta"))
        client.session.events.put(heard)
        await asyncio.sleep(1)
        await connection.receive(update("anna"))
        await connection.receive(update("berta"))
        connection.close()

    play(client, scene, transport=transport)
    shown = [out for out in client.sent if out["type"] in ("session.updated", "error")]
    voices = [out["session"]["audio"]["output"]["voice"] for out in shown if "session" in out]
    assert voices == ["anna", "berta", "berta"]
    [refused] = [out["error"] for out in shown if "error" in out]
    wanted = ("cannot_update_voice", "session.audio.output.voice", "anna")
    assert (refused["code"], refused["param"], refused["event_id"]) == wanted
    assert len([ask for ask in client.session.asked if ask[0] == "configure"]) == 3
