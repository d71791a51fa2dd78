"""Calls of a simulated Asterisk that knows only AudioSocket, over real sockets in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from core.audio import Pcm
from devices.fleet.directory import CallingPerson
from devices.telephone.audiosocket.door import AudioSocketDoor
from devices.telephone.audiosocket.framing import (
    AudioSocketDecoder,
    CallId,
    Dtmf,
    HangUp,
    Slin,
    encode_message,
)
from devices.telephone.call import IDLE_S
from devices.telephone.number import caller_uuid
from server.net.listeners import bind
from tests.devices.telephone.scene import LOUD, TelephoneScene, speech
from tests.devices.xiaozhi.servers import SineTts
from tests.loop import LoopbackClockLoop, run_virtual

pytestmark = pytest.mark.live

DEADLINE_S = 120
CALL = UUID("40325ec2-5efd-4bd3-805f-53576e581d13")


class Asterisk:
    """One call: sends a frame every 20 ms, and notes when each frame of the answer came."""

    def __init__(self, port: int, tasks: asyncio.TaskGroup) -> None:
        self._port, self._tasks = port, tasks
        self._to_say: list[Pcm] = []
        self.heard: list[tuple[float, Pcm]] = []
        self.is_hung_up = False
        self.closed, self._changed = asyncio.Event(), asyncio.Event()
        self.is_silent = False
        "True: it sends nothing at all."

    async def dial(self, uuid: UUID | None = CALL) -> "Asterisk":
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        if uuid is not None:
            self._writer.write(encode_message(CallId(uuid)))
        self._tasks.create_task(self._send())
        self._tasks.create_task(self._receive())
        return self

    def say(self, *words: str) -> None:
        self._to_say += speech(*words)

    def press(self, digits: str) -> None:
        for digit in digits:
            self.write(encode_message(Dtmf(digit)))

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def hang_up(self) -> None:
        self.write(encode_message(HangUp()))
        self._writer.close()

    def sound_times(self) -> list[float]:
        """Returns when each frame with sound came."""
        return [at for at, pcm in self.heard if len(pcm) and np.abs(pcm).max() > LOUD]

    async def sounds(self, frames: int) -> None:
        """Waits until so many frames with sound came."""
        while len(self.sound_times()) < frames:
            self._changed.clear()
            await self._changed.wait()

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not self.closed.is_set() and not self._writer.is_closing():
            pcm = self._to_say.pop(0) if self._to_say else np.zeros(160, np.int16)
            if not self.is_silent:
                self.write(encode_message(Slin(pcm.tobytes())))
            due += 0.02
            await asyncio.sleep(due - loop.time())

    async def _receive(self) -> None:
        decoder = AudioSocketDecoder()
        with suppress(ConnectionError):
            while data := await self._reader.read(4096):
                for message in decoder.receive_data(data):
                    if isinstance(message, Slin):
                        pcm = np.frombuffer(message.pcm, np.int16)
                        self.heard.append((asyncio.get_running_loop().time(), pcm))
                    self.is_hung_up |= isinstance(message, HangUp)
                self._changed.set()
        self.closed.set()
        self._writer.close()


def against(
    act: Callable[[Callable[[], Asterisk]], Awaitable[None]], scene: TelephoneScene | None = None
) -> TelephoneScene:
    """Runs a scene against the door; afterwards no call may be left."""
    scene = scene or TelephoneScene()

    async def main() -> None:
        sockets = bind("127.0.0.1", 0)
        door = AudioSocketDoor(scene.calls, scene.metrics, scene.guard)
        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
            port = sockets[0].getsockname()[1]
            running = tasks.create_task(door.run(sockets))
            await act(lambda: Asterisk(port, tasks))
            await scene.left()
            assert scene.sessions.count == 0
            running.cancel()

    run_virtual(main(), LoopbackClockLoop)
    return scene


def test_a_turn_and_the_caller_hangs_up() -> None:
    async def act(asterisk: Callable[[], Asterisk]) -> None:
        call = await asterisk().dial()
        call.say("one", "two")
        await call.sounds(14)
        await asyncio.sleep(1)
        times = call.sound_times()
        assert 14 <= len(times) <= 16  # 300 ms
        assert times[-1] - times[0] == pytest.approx(0.02 * (len(times) - 1), abs=0.01)
        assert {len(pcm) for _, pcm in call.heard} == {160}
        # silence all the time, so that nobody in between thinks that the call is dead
        gaps = np.diff([at for at, _ in call.heard])
        assert max(gaps) < 0.03
        call.hang_up()
        await call.closed.wait()
        assert not call.is_hung_up  # nothing comes back after a hang-up

    scene = against(act)
    assert scene.asked() == ["one two"]
    assert scene.ended == []


def test_speech_over_an_answer_stops_its_frames() -> None:
    async def act(asterisk: Callable[[], Asterisk]) -> None:
        call = await asterisk().dial()
        call.say("one")
        await call.sounds(20)
        began = asyncio.get_running_loop().time()
        call.say("two", "three", "four")
        await asyncio.sleep(0.6)
        last = [at for at in call.sound_times() if at > began][-1]
        # 160 ms of speech are needed to be sure that it is speech; then sound ends within 60 ms
        assert last - began < 0.16 + 0.06
        call.hang_up()

    against(act, TelephoneScene(tts=SineTts(5000)))


def test_a_key_stops_the_answer_and_keys_are_a_message() -> None:
    async def act(asterisk: Callable[[], Asterisk]) -> None:
        call = await asterisk().dial()
        call.say("one")
        await call.sounds(20)
        began = asyncio.get_running_loop().time()
        call.press("1")
        await asyncio.sleep(0.5)
        before = call.sound_times()
        assert before[-1] - began < 0.06
        call.press("2#")
        await call.sounds(len(before) + 20)
        call.press("7")
        await call.sounds(len(call.sound_times()) + 20)
        call.hang_up()

    scene = TelephoneScene(tts=SineTts(3000))
    against(act, scene)
    assert scene.asked() == ["one", "pressed 1 2 #", "pressed 7"]


def test_the_greeting_comes_first_and_the_server_hangs_up_when_it_drains() -> None:
    async def act(asterisk: Callable[[], Asterisk]) -> None:
        call = await asterisk().dial()
        await call.sounds(10)
        await scene.sessions.drain(5)
        await call.closed.wait()
        assert call.is_hung_up
        assert len(call.sound_times()) >= 14  # the greeting was heard to its end

    scene = TelephoneScene().with_settings(greeting="Hello.")
    against(act, scene)


@pytest.mark.parametrize("uuid", [CALL, UUID(int=7)])
def test_the_caller_has_the_name_of_the_configuration(uuid: UUID) -> None:
    async def act(asterisk: Callable[[], Asterisk]) -> None:
        call = await asterisk().dial(uuid)
        call.say("one")
        await call.sounds(5)
        call.hang_up()

    scene = TelephoneScene().with_settings(callers={str(CALL): "Grandma"})
    against(act, scene)
    prompt = str(scene.llm.asked[-1])
    assert ("Grandma" in prompt) == (uuid == CALL)
    assert str(uuid) not in prompt


@pytest.mark.parametrize(
    ("is_silent", "max_call_s", "ends_after_s"), [(False, 12.0, 12.0), (True, 3600.0, IDLE_S)]
)
def test_a_long_call_and_a_silent_line_end(
    is_silent: bool, max_call_s: float, ends_after_s: float
) -> None:
    async def act(asterisk: Callable[[], Asterisk]) -> None:
        call = asterisk()
        call.is_silent = is_silent
        await call.dial()
        await call.closed.wait()
        assert asyncio.get_running_loop().time() == pytest.approx(ends_after_s, abs=0.1)
        assert call.is_hung_up != is_silent

    against(act, TelephoneScene().with_settings(max_call_s=max_call_s))


PREFIX = UUID("40325ec2-5efd-4bd3-8000-000000000000")
ANNA = CallingPerson(id="spk_1", name="Anna", language="de")
ANNAS_NUMBER = "+493012345"


@pytest.mark.parametrize(
    ("number", "language", "says"),
    [
        (ANNAS_NUMBER, "de", ["Instructions of spk_1.", "from the number of Anna"]),
        (ANNAS_NUMBER, "xx", ["Instructions of spk_1.", "from the number of Anna"]),
        ("+493012346", "de", ["a guest who calls by telephone", "+493012346"]),
        ("201", "de", ["a guest who calls by telephone", "the attic"]),
        ("", "de", []),
    ],
)
def test_the_number_in_the_uuid_says_who_calls(number: str, language: str, says: list[str]) -> None:
    async def act(asterisk: Callable[[], Asterisk]) -> None:
        call = await asterisk().dial(caller_uuid(PREFIX, number))
        call.say("one")
        await call.sounds(5)
        call.hang_up()

    people = {ANNAS_NUMBER: replace(ANNA, language=language)}
    values = {"caller_uuid": PREFIX, "call_uuids": {CALL}, "callers": {"201": "the attic"}}
    scene = against(act, TelephoneScene(people=people).with_settings(**values))
    prompt = str([message for message in scene.llm.asked[-1] if message.role == "system"])
    assert all(one in prompt for one in says)
    assert says or ("telephone" not in prompt and "spk_1" not in prompt)
    own = language if (number, language) == (ANNAS_NUMBER, "de") else None
    assert {item.options.language for _, _, item in scene.asr.asked} == {own}


REFUSED: dict[str, dict[str, Any]] = {
    "another network": {"networks": ()},
    "another UUID": {"call_uuids": frozenset({UUID(int=7)}), "code": "unknown_call"},
    "another UUID than one with a number": {
        "caller_uuid": PREFIX,
        "call_uuids": frozenset({UUID(int=7)}),
        "code": "unknown_call",
    },
    "another number": {
        "uuid": caller_uuid(PREFIX, "+493012346"),
        "caller_uuid": PREFIX,
        "allowed_callers": frozenset({ANNAS_NUMBER}),
        "code": "unknown_caller",
    },
    "too many calls": {"max_calls": 0, "code": "server_full"},
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
def test_a_call_is_refused(case: dict[str, Any]) -> None:
    async def act(asterisk: Callable[[], Asterisk]) -> None:
        call = await asterisk().dial(case.get("uuid", CALL))
        await call.closed.wait()
        assert not call.heard
        assert call.is_hung_up == ("code" in case)

    values = {key: value for key, value in case.items() if key not in ("code", "uuid")}
    scene = against(act, TelephoneScene().with_settings(**values))
    assert scene.ended == ([case["code"]] if "code" in case else [])


BROKEN: dict[str, list[bytes]] = {
    "no UUID at all": [],
    "sound before the UUID": [encode_message(Slin(bytes(320)))],
    "a second UUID": [encode_message(CallId(CALL))] * 2,
    "sound at 16 kHz": [encode_message(CallId(CALL)), b"\x12\x00\x02ab"],
    "far too much sound": [encode_message(CallId(CALL)), *[encode_message(Slin(bytes(8000)))] * 25],
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN)
def test_a_line_that_breaks_the_protocol_is_hung_up(sent: list[bytes]) -> None:
    async def act(asterisk: Callable[[], Asterisk]) -> None:
        call = asterisk()
        call.is_silent = True
        await call.dial(None)
        for data in sent:
            call.write(data)
        await call.closed.wait()
        assert call.is_hung_up

    assert against(act).ended == ["protocol_error"]
