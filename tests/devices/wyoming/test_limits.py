"""Limits of waiting audio and of idle connections, in virtual time."""

import asyncio

import pytest
from wyoming.asr import Transcript
from wyoming.ping import Pong

from devices.wyoming.asr import MAX_WAITING_BYTES, AudioChunkQueue
from devices.wyoming.connection import WyomingConnection, serve_handle
from devices.wyoming.framing import LINE_TIMEOUT_S, PAUSE_TIMEOUT_S, SEND_TIMEOUT_S, WyomingStream
from devices.wyoming.requests import WyomingAudioFormat
from tests.devices.wyoming.servers import Scene
from tests.loop import run_virtual

pytestmark = pytest.mark.live

FORM = WyomingAudioFormat(16_000, 16, 1)


class Line:
    """The peer of a connection. `takes`: the number of events it reads; None: all."""

    def __init__(self, takes: int | None = None) -> None:
        self.transport, self.takes, self.is_aborted = self, takes, False

    def writelines(self, parts: object) -> None: ...

    def write(self, data: bytes) -> None: ...

    def abort(self) -> None:
        self.is_aborted = True

    async def drain(self) -> None:
        if self.takes == 0:
            await asyncio.Event().wait()
        if self.takes is not None:
            self.takes -= 1


def wire(line: Line) -> WyomingStream:
    return WyomingStream(asyncio.StreamReader(), line)  # type: ignore[arg-type]


@pytest.mark.parametrize("size_bytes", [1, 2048, 1024 * 1024])
def test_waiting_audio_is_limited_in_bytes(size_bytes: int) -> None:
    async def main() -> None:
        queue, put = AudioChunkQueue(), 0

        async def fill() -> None:
            nonlocal put
            while True:
                await queue.put(FORM, bytes(size_bytes))
                put += 1

        async with asyncio.TaskGroup() as tasks:
            filling = tasks.create_task(fill())
            await asyncio.sleep(1)
            before = put
            assert before * size_bytes < MAX_WAITING_BYTES + size_bytes
            assert before <= MAX_WAITING_BYTES // 1024
            assert await queue.get() == (FORM, bytes(size_bytes))
            await asyncio.sleep(1)
            assert put == before + 1  # there is room again
            filling.cancel()

    run_virtual(main())


def test_a_connection_is_idle_if_it_neither_sends_nor_reads() -> None:
    async def main() -> None:
        one = wire(Line())
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(one.read(300))
            for _ in range(3):  # a speech of ten minutes, played as it comes
                await asyncio.sleep(200)
                await one.send(Pong())
            assert not reading.done()
            assert await reading is None

    assert run_virtual(main()) == pytest.approx(900)


def test_an_unread_answer_ends_the_language_model_at_once() -> None:
    scene, line = Scene(), Line(takes=3)
    scene.llm.word_s = 1.0

    async def main() -> None:
        scene.door()
        with pytest.raises(ConnectionError):
            await serve_handle(
                wire(line), Transcript("one two three four").event(), scene.exchanges
            )
        assert scene.llm.closed_early == 1

    assert run_virtual(main()) < 5 + SEND_TIMEOUT_S
    assert line.is_aborted


def fed(data: bytes) -> tuple[WyomingStream, asyncio.StreamReader]:
    """Returns a connection that received these bytes, and the source of more."""
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    return WyomingStream(reader, Line()), reader  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("begun", "wait_s"),
    [
        (b"", 300),
        (b"{", LINE_TIMEOUT_S),
        (b'{"type": "ping"', LINE_TIMEOUT_S),
        (b'{"type": "ping", "data_length": 9}\n{', PAUSE_TIMEOUT_S),
        (b'{"type": "ping", "payload_length": 9}\n12345678', PAUSE_TIMEOUT_S),
    ],
    ids=["nothing", "a byte", "half a line", "half the data", "half the payload"],
)
def test_an_event_that_has_begun_must_go_on(begun: bytes, wait_s: float) -> None:
    """Events sent to its sender meanwhile do not extend its timeout."""

    async def main() -> None:
        one, _ = fed(begun)
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(one.read(300))
            if begun:
                await asyncio.sleep(wait_s / 2)
                await one.send(Pong())
            assert await reading is None

    assert run_virtual(main()) == pytest.approx(wait_s)


def test_audio_that_trickles_in_is_accepted() -> None:
    async def main() -> None:
        one, reader = fed(b'{"type": "audio-chunk", "payload_length": 4}\n')
        async with asyncio.TaskGroup() as tasks:
            reading = tasks.create_task(one.read(300))
            for _ in range(4):
                await asyncio.sleep(PAUSE_TIMEOUT_S - 1)
                reader.feed_data(b"s")
            event = await reading
        assert event is not None
        assert event.payload == b"ssss"

    run_virtual(main())


@pytest.mark.parametrize("kind", [b"ping", b"describe", b"unknown"])
def test_a_flood_of_events_does_not_block_the_loop(kind: bytes) -> None:
    """Also if neither its bytes nor the answers ever make the server wait."""
    event = b'{"type":"%s"}\n' % kind
    count, turns = 200, 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def main() -> None:
        scene = Scene()
        scene.door()
        one, reader = fed(event * count)
        reader.feed_eof()
        async with asyncio.TaskGroup() as tasks:
            waiting = tasks.create_task(other())
            await WyomingConnection(one, scene.services, tasks, lambda: None).run()
            waiting.cancel()

    run_virtual(main())
    assert turns >= count
