"""A room with simulated devices of several kinds, whose doors share one arbitration."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
from wyoming.client import AsyncTcpClient
from wyoming.ping import Ping
from wyoming.wake import Detect

from core.audio import Pcm
from devices.fleet.wake_arbiter import WakeArbiter
from engines.base.wake import WakeWord, WakeWordDetection, WakeWordDetector
from tests.devices.willow.was import servers as willow
from tests.devices.willow.was.simulated_device import SimulatedWillow
from tests.devices.wyoming import servers as wyoming
from tests.devices.xiaozhi import servers as xiaozhi
from tests.devices.xiaozhi.simulated_board import Board
from tests.pipeline.fakes import LoopClock

WORD = "Alexa"
ROOM = "Kitchen"
LOUD, QUIET = 12_000, 3000


class FirstSoundDetector:
    """Detects its word at the first sound after silence."""

    def __init__(self) -> None:
        self._position, self._has_sound = 0, False

    def push(self, pcm: Pcm) -> tuple[WakeWordDetection, ...]:
        before, self._has_sound = self._has_sound, bool(np.any(pcm))
        self._position += len(pcm)
        if before or not self._has_sound:
            return ()
        return (WakeWordDetection("alexa", self._position, self._position),)

    def reset(self) -> None:
        self._position, self._has_sound = 0, False


class FirstSoundEngine:
    name = "first_sound"
    words: tuple[WakeWord, ...] = (WakeWord("alexa", WORD, ("en",)),)

    def open(self, names: Sequence[str]) -> WakeWordDetector:
        return FirstSoundDetector()


@dataclass
class WakeRoom:
    """The doors, and one device of each kind that knows no library of its own."""

    willow: willow.Server
    xiaozhi: xiaozhi.Server
    box: SimulatedWillow
    board: Board
    stream: AsyncTcpClient | None
    "Stream of a satellite's microphone, as Home Assistant opens it."
    log: list[str] = field(default_factory=list[str])

    async def wake_box(self, level: int) -> bool:
        """Says the wake word to a device; returns whether it answers. The same for the others."""
        seen = len(self.box.wake_results())
        await self.box.wake(20 * float(np.log10(level / 32_768)))
        await self.box.until(lambda: len(self.box.wake_results()) > seen)
        return self.box.wake_results()[-1]

    async def wake_board(self, level: int) -> bool:
        await self.board.open(listens=False)
        await self.board.wake(WORD, level)
        await self.board.listen()
        closing = asyncio.create_task(self.board.closed.wait())
        await asyncio.wait((closing,), timeout=1.0)
        closing.cancel()
        if self.board.closed.is_set():
            assert (self.board.close_code, self.board.state) == (1000, "idle")
            assert [one["type"] for one in self.board.texts if one["type"] != "mcp"] == []
            await self.board._stop()
            return False
        await self.board.hang_up()
        return True

    async def wake_stream(self, level: int) -> bool:
        assert self.stream is not None
        sound = wyoming.sound((0, 100), (level, 300))
        await wyoming.send(self.stream, Detect(), *sound, Ping())
        told = [event.type for event in await wyoming.until(self.stream, "pong")]
        assert told in (["detection", "pong"], ["not-detected", "pong"])
        return told[0] == "detection"


@asynccontextmanager
async def wake_room(arbiter: WakeArbiter, *, is_real: bool = False) -> AsyncIterator[WakeRoom]:
    """Runs the doors of a room in which every device stands. is_real: True: time is real, so the
    streams of satellites can take part, whose wake words are found in threads."""
    async with AsyncExitStack() as stack:
        box_scene = willow.Scene(wake_arbiter=arbiter)
        willow_server = await stack.enter_async_context(willow.running(box_scene))
        board_directory = xiaozhi.MemoryDirectory(prefix="board_")
        board_scene = xiaozhi.Scene(directory=board_directory, wake_arbiter=arbiter)
        xiaozhi_server = await stack.enter_async_context(xiaozhi.running(board_scene))
        stream = None
        if is_real:
            port = await stack.enter_async_context(stream_scene(arbiter).serving())
            stream = await stack.enter_async_context(wyoming.client(port))
        box = await willow_server.device(1, room=ROOM)
        board = xiaozhi_server.board()
        await board.boot()
        yield WakeRoom(willow_server, xiaozhi_server, box, board, stream)


def stream_scene(arbiter: WakeArbiter) -> wyoming.Scene:
    """Returns a scene in which Home Assistant's machine stands in the room."""
    directory = wyoming.Standings(area=ROOM)
    scene = wyoming.Scene(wake=FirstSoundEngine(), directory=directory, wake_arbiter=arbiter)
    return wyoming.limited(scene, trusts_this_machine=False)


def new_arbiter() -> WakeArbiter:
    return WakeArbiter(LoopClock())
