"""A server process and the `wyoming` package's own client: transcripts, answers and speech."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic

import numpy as np
import pytest
from wyoming.asr import Transcribe, Transcript
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.event import Event, Eventable
from wyoming.info import Describe, Info
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart

from core.audio import ASR_RATE_HZ, Pcm
from tests.devices.wyoming.servers import client, send, until
from tests.ports import reserved_port
from tests.server.process import Running, serving
from tests.speech import say

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("talkers")]

CHUNK = 512
"Samples, as satellites send them."


@pytest.fixture(scope="module")
def wyoming(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, int]]:
    folder = tmp_path_factory.mktemp("server")
    with reserved_port() as port:
        settings = {"EARSHOT_WYOMING__PORT": str(port)}
        with serving(folder, recogniser={}, settings=settings) as server:
            yield server, port


def spoken(pcm: Pcm) -> list[AudioChunk]:
    return [
        AudioChunk(rate=ASR_RATE_HZ, width=2, channels=1, audio=pcm[at : at + CHUNK].tobytes())
        for at in range(0, len(pcm), CHUNK)
    ]


def test_a_signal_stops_a_server_with_open_connections(tmp_path: Path) -> None:
    """One is idle, one is in the middle of an utterance, one never finishes its text."""
    pcm = say("turn on the kitchen lights")
    begun: tuple[list[Eventable], ...] = (
        [],
        [Transcribe(), AudioStart(ASR_RATE_HZ, 2, 1), *spoken(pcm)],
        [SynthesizeStart(), SynthesizeChunk("Good morning to")],
    )

    async def main(server: Running, port: int) -> int:
        async with AsyncExitStack() as stack:
            for said in begun:
                one = await stack.enter_async_context(client(port))
                await send(one, *said, Describe())
                await until(one, "info")
            return await asyncio.to_thread(server.stop)

    with reserved_port() as port:
        settings = {"EARSHOT_WYOMING__PORT": str(port), "EARSHOT_SERVER__DRAIN_TIMEOUT_S": "1"}
        with serving(tmp_path, recogniser={}, settings=settings) as server:
            began = monotonic()
            assert asyncio.run(main(server, port)) == 0
            assert monotonic() - began < 20
            assert not [line for line in server.said if "Traceback" in line or "never" in line]


def test_the_four_connections_of_a_home_assistant_turn(wyoming: tuple[Running, int]) -> None:
    """Four connections: the description, speech to text, text to answer, answer to speech."""
    server, port = wyoming
    text = "turn on the kitchen lights"
    pcm = np.concatenate([say(text), np.zeros(ASR_RATE_HZ // 2, np.int16)])

    async def ask(last: str, *events: object) -> list[Event]:
        async with asyncio.timeout(20), client(port) as one:
            await send(one, *events)  # type: ignore[arg-type]
            return await until(one, last)

    async def main() -> tuple[Info, str, str, bytes]:
        (info,) = await ask("info", Describe())
        start, stop = AudioStart(ASR_RATE_HZ, 2, 1), AudioStop()
        heard = await ask("transcript", Transcribe(language="en"), start, *spoken(pcm), stop)
        transcript = heard[-1].data["text"]
        context = {"conversation_id": "one"}
        handled = await ask("handled", Transcript(transcript, context=context, language="en"))
        answer = handled[-1].data["text"]
        sound = await ask("audio-stop", Synthesize(answer))
        return Info.from_event(info), transcript, answer, b"".join(e.payload or b"" for e in sound)

    info, transcript, answer, sound = asyncio.run(main())
    assert "en" in info.asr[0].models[0].languages
    assert transcript == text
    assert "kitchen" in answer.lower()
    samples = np.frombuffer(sound, np.int16)
    assert len(samples) > 11_025  # half a second
    assert np.abs(samples).max() > 1000
    assert f"Wyoming at 127.0.0.1:{port}" in "\n".join(server.said)
