"""What waits and how long, on a clock of its own."""

import asyncio

import pytest
from wyoming.asr import Transcript
from wyoming.ping import Pong

from devices.wyoming.answer import answer
from devices.wyoming.asked import SoundFormat
from devices.wyoming.hear import MAX_WAITING_BYTES, SoundQueue
from devices.wyoming.wire import SEND_TIMEOUT_S, Wire
from tests.devices.wyoming.servers import Scene
from tests.loop import run_virtual

FORM = SoundFormat(16_000, 16, 1)


class Line:
    """What the wire writes to. `takes`: as many events; None: all."""

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


def wire(line: Line) -> Wire:
    return Wire(asyncio.StreamReader(), line)  # type: ignore[arg-type]


@pytest.mark.parametrize("size_bytes", [1, 2048, 1024 * 1024])
def test_sound_that_waits_is_bounded_by_its_bytes(size_bytes: int) -> None:
    async def main() -> None:
        queue, put = SoundQueue(), 0

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


def test_a_connection_is_idle_when_nothing_comes_and_nothing_is_taken() -> None:
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


def test_an_answer_nobody_takes_ends_the_language_model_at_once() -> None:
    scene, line = Scene(), Line(takes=3)
    scene.llm.word_s = 1.0

    async def main() -> None:
        scene.door()
        with pytest.raises(ConnectionError):
            await answer(wire(line), Transcript("one two three four").event(), scene.exchanges)
        assert scene.llm.closed_early == 1

    assert run_virtual(main()) < 5 + SEND_TIMEOUT_S
    assert line.is_aborted
