"""Two gateways with one recogniser: turns at both at once, and a model host that is killed."""

import asyncio
import signal
from base64 import b64encode
from pathlib import Path

import psutil
import pytest
from aiohttp import ClientWebSocketResponse

from tests.server.gateways.two_gateways import TWO_GATEWAYS, client, until
from tests.server.process import Running, serving
from tests.speech import say

pytestmark = pytest.mark.real

RATE_HZ = 24_000
LIGHTS, TIMER = "turn on the kitchen lights", "set a timer for five minutes"
DEADLINE_S = 120
SESSION = {"type": "realtime", "audio": {"input": {"turn_detection": None}}}


def children(server: Running, argument: str) -> list[psutil.Process]:
    """Returns the processes below the server's with this argument."""
    below = psutil.Process(server.process.pid).children(recursive=True)
    return [one for one in below if argument in one.cmdline()]


async def said(socket: ClientWebSocketResponse, text: str) -> None:
    """Says a sentence, whose end the client decides."""
    pcm = say(text, rate_hz=RATE_HZ, tail_ms=300)
    await socket.send_json({"type": "session.update", "session": SESSION})
    audio = b64encode(pcm.astype("<i2").tobytes()).decode()
    await socket.send_json({"type": "input_audio_buffer.append", "audio": audio})
    await socket.send_json({"type": "input_audio_buffer.commit"})


async def heard(socket: ClientWebSocketResponse) -> str:
    """Returns the words of the turn."""
    while True:
        event = await socket.receive_json()
        assert event["type"] != "error", event
        if event["type"].startswith("conversation.item.input_audio_transcription."):
            kind = event["type"].rpartition(".")[2]
            assert kind in ("delta", "completed"), event
            if kind == "completed":
                return str(event["transcript"]).lower().rstrip(".")


def test_two_gateways_share_a_model_host(tmp_path: Path) -> None:
    async def scene(server: Running) -> None:
        async with (
            asyncio.timeout(DEADLINE_S),
            client(server) as http,
            http.ws_connect("/v1/realtime") as one,
            http.ws_connect("/v1/realtime") as two,
        ):
            recognisers = children(server, "engines.runtime.worker.main")
            assert len(recognisers) == 1
            await asyncio.gather(said(one, LIGHTS), said(two, TIMER))
            assert [*await asyncio.gather(heard(one), heard(two))] == [LIGHTS, TIMER]

            recognisers[0].send_signal(signal.SIGSTOP)  # so that the turns are under way
            await asyncio.gather(said(one, TIMER), said(two, LIGHTS))
            await asyncio.sleep(0.5)  # they reach the host; nothing outside shows that
            (host,) = children(server, "--as-model-host")
            host.kill()
            assert [*await asyncio.gather(heard(one), heard(two))] == [TIMER, LIGHTS]
            assert len(children(server, "engines.runtime.worker.main")) == 1

            async def has_metrics() -> bool:
                async with http.get("/metrics") as answer:
                    return 'earshot_asr_queue_seconds_count{priority="final"}' in (
                        await answer.text()
                    )

            await until(has_metrics)

    with serving(tmp_path, settings=TWO_GATEWAYS) as server:
        asyncio.run(scene(server))
        assert server.stop() == 0
