"""Tools of a board over its socket: one call at a time, with a timeout."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from core.errors import EngineTimeout
from devices.xiaozhi.device_tools import CALL_TIMEOUT_S, ConnectionTools, _needs_vision
from firmware_protocol.xiaozhi.mcp import DeviceTool, alias_of
from tests.loop import run_virtual

pytestmark = pytest.mark.live

VOLUME = "self.audio_speaker.set_volume"


class Line:
    """The connection of a board that answers after a while, or never."""

    def __init__(self, *, tools: int = 1, takes_s: float = 0.1, answers: bool = True) -> None:
        self.asked: list[dict[str, Any]] = []
        self.running = self.most_running = 0
        self.tools = ConnectionTools(self.send, "1.0")
        self._count, self._takes_s, self._answers = tools, takes_s, answers
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(self, request: Any) -> None:
        self.asked.append(request)
        if self._answers:
            self._tasks.add(asyncio.get_running_loop().create_task(self._answer(request)))

    async def _answer(self, request: dict[str, Any]) -> None:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(self._takes_s)
        self.running -= 1
        result: dict[str, Any] = {"serverInfo": {"name": "b", "version": "1"}}
        if request["method"] == "tools/list":
            names = [VOLUME, *(f"self.t{number}" for number in range(1, self._count))]
            result = {"tools": [{"name": name} for name in names]}
        elif request["method"] == "tools/call":
            result = {"content": [{"type": "text", "text": "true"}]}
        self.tools.receive({"jsonrpc": "2.0", "id": request["id"], "result": result})


def virtually(line: Callable[[], Line], act: Callable[[Line], Awaitable[None]]) -> float:
    async def main() -> None:
        await act(line())

    return run_virtual(main())


def test_only_one_call_is_made_at_a_time() -> None:
    async def act(line: Line) -> None:
        await line.tools.run(None)
        calls = [line.tools.call("self_audio_speaker_set_volume", {}) for _ in range(5)]
        outcomes = await asyncio.gather(*calls)
        assert [outcome.data for outcome in outcomes] == [{"result": "true"}] * 5
        assert line.most_running == 1

    assert virtually(Line, act) == pytest.approx(0.2 + 0.5)


def test_a_chosen_volume_is_set_once_the_tools_are_known() -> None:
    async def act(line: Line) -> None:
        await line.tools.run(40)
        assert line.asked[-1]["params"] == {"name": VOLUME, "arguments": {"volume": 40}}

    virtually(Line, act)


def test_a_board_that_never_answers_has_no_tools() -> None:
    async def act(line: Line) -> None:
        await line.tools.run(40)
        assert line.tools.specs == ()
        assert not await line.tools.update("http://x/y.bin")

    assert virtually(lambda: Line(answers=False), act) == pytest.approx(10)


def test_a_call_that_times_out_frees_the_board_for_the_next() -> None:
    async def act(line: Line) -> None:
        await line.tools.run(None)
        line._takes_s = CALL_TIMEOUT_S + 1
        with pytest.raises(EngineTimeout, match="may still happen"):
            await line.tools.call("self_audio_speaker_set_volume", {})
        line._takes_s = 0.1
        outcome = await line.tools.call("self_audio_speaker_set_volume", {})
        assert outcome.error is None
        await asyncio.sleep(20)  # the late answer is nobody's

    virtually(Line, act)


def test_a_cancelled_call_frees_the_board() -> None:
    async def act(line: Line) -> None:
        await line.tools.run(None)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await line.tools.call("self_audio_speaker_set_volume", {})
        outcome = await line.tools.call("self_audio_speaker_set_volume", {})
        assert outcome.error is None

    virtually(Line, act)


@pytest.mark.parametrize(
    ("name", "description", "needs_eyes"),
    [
        ("self.camera.take_photo", "", True),
        ("look_around", "Takes a picture of the room.", True),
        ("take_screenshot", "", True),
        ("self.screen.snapshot", "", True),
        ("analyze", "Looks at the user's screen and answers.", True),
        ("see", "用摄像头拍照并回答", True),
        ("self.screen.set_brightness", "Sets how bright the screen is.", False),
        ("self.screen.set_theme", "light or dark", False),
        ("self.get_device_status", "Tells about the device.", False),
        ("self.audio_speaker.set_volume", "", False),
    ],
)
def test_camera_tools_are_not_offered(name: str, description: str, needs_eyes: bool) -> None:
    tool = DeviceTool(name, alias_of(name), description, {"type": "object"})
    assert _needs_vision(tool) is needs_eyes
