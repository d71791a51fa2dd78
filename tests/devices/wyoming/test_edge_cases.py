"""Clients that change their mind, leave or send on after an error; servers that stop meanwhile."""

import asyncio
import socket
from contextlib import suppress
from ipaddress import ip_network

import pytest
from wyoming.asr import Transcribe, Transcript
from wyoming.event import Event
from wyoming.info import Describe
from wyoming.ping import Ping
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart

from server.net.listeners import bind
from tests.devices.wyoming.servers import (
    DEADLINE_S,
    SILENCE,
    SPEECH,
    Scene,
    client,
    kinds,
    limited,
    run,
    send,
    sound,
    texts,
    until,
)

pytestmark = pytest.mark.live

START, *CHUNKS, STOP = sound((SPEECH, 600), (SILENCE, 300))
HEARING = [Transcribe(), START, *CHUNKS]
SPEAKING = [SynthesizeStart(), SynthesizeChunk("Good morning. How")]


@pytest.mark.parametrize("begun", [HEARING, SPEAKING], ids=["hearing", "speaking"])
@pytest.mark.parametrize(
    ("then", "last"),
    [
        ([Transcript("hello")], "handled-stop"),
        ([Transcribe(), *sound((2 * SPEECH, 600), (SILENCE, 300))], "transcript"),
        ([Event("synthesize-start"), Event("synthesize-stop")], "synthesize-stopped"),
    ],
    ids=["answer", "hear", "speak"],
)
def test_a_request_during_another_replaces_it(
    begun: list[object], then: list[object], last: str
) -> None:
    """Otherwise the first request would wait for ever for more events of the client."""
    scene = Scene()
    found = run(scene, *begun, *then, last=last)
    assert found[-1].type == last
    assert "error" not in kinds(found)
    assert texts(found, "transcript") in ([], ["two"])


def test_a_text_during_an_utterance_is_synthesised() -> None:
    found = run(Scene(), *HEARING, Synthesize("Good morning."), last="audio-stop")
    assert kinds(found)[-3:] == ["audio-start", "audio-chunk", "audio-stop"]


def test_nothing_is_done_after_an_error_which_is_sent_once() -> None:
    scene = Scene()
    bad = Event("transcribe", {"language": "fr"})
    said = [bad, bad, Synthesize("Good morning."), *HEARING, STOP]
    found = run(scene, *said, last="nothing")
    assert [event.data["code"] for event in found] == ["unsupported_language"]
    assert len(scene.ended) == 1


@pytest.mark.parametrize("begun", [[Synthesize("a")], [*SPEAKING]], ids=["whole", "pieces"])
def test_a_failed_request_is_reported_once(begun: list[object]) -> None:
    scene = Scene()
    scene.tts.fails = True
    found = run(scene, *begun, Synthesize("b"), Synthesize("c"), last="nothing")
    assert kinds(found) == ["audio-start", "error"]
    assert found[-1].data["code"] == "engine_failed"
    assert [error.code for error in scene.ended] == ["engine_failed"]


def test_an_error_reaches_a_client_that_keeps_sending() -> None:
    """Closing a connection with unread data would reset it."""
    bad = Event("transcribe", {"language": "fr"})
    found = run(Scene(), bad, *sound((SPEECH, 5000)), last="nothing")
    assert kinds(found) == ["error"]


def test_a_disconnect_within_a_header_is_not_an_error() -> None:
    scene = Scene()

    async def main() -> None:
        async with scene.serving() as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b'{"type": "desc')
            writer.close()
            await writer.wait_closed()
            async with client(port) as one:
                await send(one, Ping())
                await until(one, "pong")

    asyncio.run(main())
    assert scene.ended == []


def test_a_language_model_stops_when_the_client_leaves() -> None:
    scene = Scene()
    scene.llm.word_s = 0.05

    async def main() -> None:
        async with scene.serving() as port, client(port) as one:
            await send(one, Transcript(" ".join(["word"] * 2000)))
            await until(one, "handled-chunk")

    asyncio.run(main())
    assert scene.llm.closed_early == 1
    assert scene.ended == []


def test_stopping_ends_every_connection_at_once() -> None:
    """One is idle, one sends audio, one waits for text, one reads nothing."""
    scene = limited(Scene(), max_connections=8)
    deaf = [Synthesize("Good morning. " * 1000)]

    async def main() -> float:
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
            sockets = bind("127.0.0.1", 0)
            running = tasks.create_task(scene.door().run(sockets))
            writers = []
            for said in ([Ping()], HEARING, SPEAKING, deaf):
                async with client(sockets[0].getsockname()[1]) as one:
                    await send(one, *said, Describe())
                    await until(one, "info")
                    writers.append(one._writer)
                    one._writer = None  # it stays open
            loop = asyncio.get_running_loop()
            began = loop.time()
            running.cancel()
            await asyncio.wait((running,))
            took_s = loop.time() - began
            for writer in writers:
                assert writer is not None
                writer.close()
            return took_s

    assert asyncio.run(main()) < 3
    assert scene.ended == []


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="needs IPv6")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_dual_stack_socket_checks_ipv4_networks(host: str) -> None:
    """An IPv4 client has the address `::ffff:127.0.0.1` there."""

    async def main(network: str) -> bytes:
        scene = limited(Scene(), networks=(ip_network(network),))
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
            sockets = bind("::", 0)
            running = tasks.create_task(scene.door().run(sockets))
            reader, writer = await asyncio.open_connection(host, sockets[0].getsockname()[1])
            writer.write(b'{"type": "ping"}\n')
            found = b""
            with suppress(ConnectionError):  # closed with our ping unread
                found = await reader.read(6)
            writer.close()
            running.cancel()
            return found

    own, other = "127.0.0.0/8", "::1/128"
    if host == "::1":
        own, other = other, own
    assert asyncio.run(main(own)) == b'{"type'
    assert asyncio.run(main(other)) == b""
