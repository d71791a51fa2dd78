"""OpenAI's Node client and the Realtime API: its WebSocket classes, client secrets and calls."""

import asyncio
import os
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, TCPConnector

from core.audio import AudioFrame
from media.files.decode import write_wav
from media.webrtc.peer import CloseReason
from tests.clients.programs import told_by
from tests.clients.scripted_server import LONG, answering
from tests.signaling.realtime.webrtc_client import CALLS, SDP, Caller
from tests.speech import say

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("npm")]

RATE_HZ = 24_000


async def run_during_a_call(url: str, certificate: Path, program: Path, clip: Path) -> Any:
    """Runs the client while a call is up, which it hangs up at the end; returns what it printed."""
    trust = TCPConnector(ssl=ssl.create_default_context(cafile=str(certificate)))
    caller = Caller()
    async with ClientSession(url, connector=trust) as http:
        offer = await caller.peer.offer()
        async with http.post(CALLS, data=offer, headers=SDP) as response:
            call_id = response.headers["Location"].removeprefix(f"{CALLS}/")
            await caller.peer.accept(await response.text())
    environment = {**os.environ, "NODE_EXTRA_CA_CERTS": str(certificate)}
    command = ("node", "realtime.mjs", url, clip, call_id)
    async with asyncio.TaskGroup() as tasks:
        over = tasks.create_task(caller.peer.run())
        await caller.expect("session.created")
        told = await asyncio.to_thread(told_by, program, *command, environment=environment)
        assert await over is CloseReason.REMOTE_CLOSED
    await caller.heard.wait()
    return told


def test_the_official_node_client_uses_the_realtime_api(openai_node: Path, tmp_path: Path) -> None:
    clip = tmp_path / "clip.wav"
    pcm = say("turn on the kitchen light", rate_hz=RATE_HZ, lead_ms=200, tail_ms=200)
    write_wav(clip, [AudioFrame(pcm, RATE_HZ, 0)])
    with answering(tmp_path, "--tls", "auto") as server:
        certificate = tmp_path / "earshot" / "tls.pem"
        got = asyncio.run(run_during_a_call(server.url, certificate, openai_node, clip))
    assert got["tool"] == {
        "said": ["One moment.", "It says on."],
        "name": "set_light",
        "given": {"on": True},
    }
    assert "kitchen light" in got["speech"]["heard"].lower()
    assert got["speech"]["said"] == "One moment."
    cut = got["interrupted"]
    assert (cut["status"], cut["reason"], cut["item"]) == (
        "cancelled",
        "client_cancelled",
        "incomplete",
    )
    assert len(cut["said"]) < 8
    assert got["error"] == {"before": 0, "code": "response_cancel_not_active", "eventId": "late"}
    secret = got["secret"]
    assert secret["prefix"] == "ek_"
    assert 0 < secret["seconds"] <= 61
    assert secret["minted"] == secret["begun"] == "Be a parrot."
    assert "401" in secret["refused"]
    assert got["call"] == {"said": LONG, "again": [True, "call_not_found"], "sip": True}
