"""Calls of a simulated Twilio that knows only the wire facts, over real sockets in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
import pytest
from aiohttp import ClientSession, WSServerHandshakeError

from bench.client.telephone import TwilioAccount, TwilioPeer
from core.audio import AudioFrame
from devices.fleet.directory import CallingPerson
from devices.telephone.twilio.door import TwilioDoor
from devices.telephone.twilio.line import LEAD_S, START_TIMEOUT_S
from devices.telephone.twilio.routes import routes
from tests.devices.telephone.scene import LOUD, TelephoneScene, speech
from tests.devices.xiaozhi.servers import SineTts
from tests.loop import LoopbackClockLoop, run_virtual
from tests.pipeline.fakes import EchoLlm, LoopClock
from tests.server.http.harness import serving

pytestmark = pytest.mark.live

DEADLINE_S = 120
TOKEN = "secret-of-the-account"
URL = "https://voice.example.com"
CALLER = "+493012345"
WORDS_PER_S = 4
"Of an answer with 20 words and 5 s."


class Caller:
    """A person at a telephone of the number."""

    def __init__(
        self, scene: TelephoneScene, http: ClientSession, tasks: asyncio.TaskGroup, number: int
    ) -> None:
        self.scene, self._http, self._tasks = scene, http, tasks
        self.account = TwilioAccount(TOKEN, URL, CALLER, f"CA{number:032x}")
        self.peer = TwilioPeer(self.account, self._hear)
        self.arrived: list[tuple[float, AudioFrame]] = []
        self._changed = asyncio.Event()

    async def dial(self, **start: Any) -> "Caller":
        async with await self.peer.ask(self._http) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/xml"
            twiml = await answer.text()
        await self.peer.connect(self._http, twiml, **start)
        self._tasks.create_task(self.peer.read())
        self._tasks.create_task(self.peer.send_audio())
        return self

    async def say(self, *words: str) -> None:
        await self.peer.microphone.say(np.concatenate(speech(*words)))

    def begin_to_say(self, *words: str) -> None:
        self._tasks.create_task(self.say(*words))

    async def sounds(self, frames: int) -> None:
        """Waits until so many frames with sound came."""
        while len(self.sound_times()) < frames:
            self._changed.clear()
            await self._changed.wait()

    def sound_times(self) -> list[float]:
        return [at for at, frame in self.arrived if np.abs(frame.pcm).max() > LOUD]

    def _hear(self, frame: AudioFrame, at: float) -> None:
        self.arrived.append((at, frame))
        self._changed.set()


def against(
    act: Callable[[Callable[[], Caller]], Awaitable[None]], scene: TelephoneScene | None = None
) -> TelephoneScene:
    """Runs a scene against the door; afterwards no call may be left."""
    scene = (scene or TelephoneScene()).with_settings(twilio_auth_token=TOKEN, twilio_url=URL)

    async def main() -> None:
        door = TwilioDoor(scene.calls, LoopClock(), scene.metrics, scene.guard)
        numbers = count(1)
        async with (
            asyncio.timeout(DEADLINE_S),
            serving(routes(door)) as http,
            asyncio.TaskGroup() as tasks,
        ):
            await act(lambda: Caller(scene, http, tasks, next(numbers)))
            await scene.left()
            assert scene.sessions.count == 0

    run_virtual(main(), LoopbackClockLoop)
    return scene


def test_a_turn_and_the_caller_hangs_up() -> None:
    async def act(caller: Callable[[], Caller]) -> None:
        call = await caller().dial()
        await call.say("one", "two")
        await call.sounds(14)
        await asyncio.sleep(1)
        times = call.sound_times()
        assert 14 <= len(times) <= 16  # 300 ms
        assert {len(frame.pcm) for _, frame in call.arrived} == {160}
        # sent ahead by the lead and no more
        ahead = [at + LEAD_S - times[0] for at in times]
        assert all(0.02 * number <= most + 0.021 for number, most in enumerate(ahead))
        assert times[5] - times[0] < 0.02
        assert len(call.peer.returned_marks) == len(call.arrived)
        assert call.peer.cleared_at == []
        await call.peer.hang_up()

    scene = against(act)
    assert scene.asked() == ["one two"]
    assert scene.ended == []


def test_two_callers_have_a_conversation_each() -> None:
    async def act(caller: Callable[[], Caller]) -> None:
        calls = [await caller().dial() for _ in range(2)]
        for call, word in zip(calls, ("one", "two"), strict=True):
            await call.say(word)
            await call.sounds(10)
        for call in calls:
            await call.peer.hang_up()

    scene = against(act)
    assert scene.asked() == ["two"]


def test_speech_over_an_answer_clears_it_and_the_history_has_what_was_heard() -> None:
    async def act(caller: Callable[[], Caller]) -> None:
        call = await caller().dial()
        await call.say("one")
        await call.sounds(50)
        began = asyncio.get_running_loop().time()
        call.begin_to_say("two", "three", "four")
        await asyncio.sleep(0.6)
        # 160 ms of speech are needed to be sure that it is speech; then the clear goes out
        cleared_at = call.peer.cleared_at[0]
        assert cleared_at - began < 0.16 + 0.06
        assert call.sound_times()[-1] <= cleared_at
        first = call.sound_times()[0]
        await asyncio.sleep(1)
        heard_words.append((cleared_at - first) * WORDS_PER_S)
        await call.peer.hang_up()

    heard_words: list[float] = []
    llm = EchoLlm(0, ending=" and" * 17)
    scene = against(act, TelephoneScene(tts=SineTts(5000), llm=llm))
    told = [message.text for message in scene.llm.asked[-1] if message.role == "assistant"]
    assert len(told[0].split()) == pytest.approx(heard_words[0], abs=1)


def test_a_sound_without_words_only_pauses_the_answer() -> None:
    async def act(caller: Callable[[], Caller]) -> None:
        call = await caller().dial()
        await call.say("one")
        await call.sounds(30)
        await call.peer.microphone.say(np.concatenate(speech("one"))[:1920] // 3)
        await asyncio.sleep(4)
        assert len(call.peer.cleared_at) == 1
        # what the clear dropped came again, so the caller missed nothing
        again = len(call.sound_times()) - 100
        assert 0 < again <= LEAD_S / 0.02 + 2
        await call.peer.hang_up()

    against(act, TelephoneScene(tts=SineTts(2000)))


def test_keys_stop_the_answer_and_are_a_message() -> None:
    async def act(caller: Callable[[], Caller]) -> None:
        call = await caller().dial()
        await call.say("one")
        await call.sounds(20)
        began = asyncio.get_running_loop().time()
        await call.peer.press("1")
        await asyncio.sleep(0.5)
        assert call.peer.cleared_at[0] - began < 0.06
        await call.peer.press("2")
        await call.peer.press("#")
        await call.sounds(len(call.sound_times()) + 20)
        await call.peer.hang_up()

    scene = TelephoneScene(tts=SineTts(3000))
    assert against(act, scene).asked() == ["one", "pressed 1 2 #"]


def test_the_server_hangs_up_by_closing_the_stream() -> None:
    async def act(caller: Callable[[], Caller]) -> None:
        call = await caller().dial()
        await call.sounds(10)
        await call.scene.sessions.drain(5)
        await call.peer.closed.wait()
        assert len(call.sound_times()) >= 14  # the greeting was heard to its end

    against(act, TelephoneScene().with_settings(greeting="Hello."))


def test_the_name_of_the_caller_is_that_of_the_settings() -> None:
    async def act(caller: Callable[[], Caller]) -> None:
        call = await caller().dial()
        await call.say("one")
        await call.sounds(5)
        await call.peer.hang_up()

    scene = against(act, TelephoneScene().with_settings(callers={CALLER: "Grandma"}))
    assert "Grandma" in str(scene.llm.asked[-1])


def test_a_person_of_the_house_is_known_by_the_number_and_a_withheld_one_by_nothing() -> None:
    anna = CallingPerson(id="spk_1", name="Anna", language="")

    async def act(caller: Callable[[], Caller]) -> None:
        for number in (CALLER, "+266696687"):
            call = caller()
            call.account = replace(call.account, caller=number)
            call.peer = TwilioPeer(call.account, call._hear)
            await call.dial()
            await call.say("one")
            await call.sounds(5)
            await call.peer.hang_up()

    scene = against(act, TelephoneScene(people={CALLER: anna}))
    known, withheld = (str(asked) for asked in scene.llm.asked)
    assert "from the number of Anna" in known
    assert "Instructions of spk_1." in known
    assert "telephone" not in withheld


REFUSED_CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "another number": ({"allowed_callers": frozenset({"+4930999"})}, "rejected"),
    "too many calls": ({"max_calls": 0}, "busy"),
}


@pytest.mark.parametrize("case", REFUSED_CALLS.values(), ids=REFUSED_CALLS)
def test_a_call_is_refused_without_a_stream(case: tuple[dict[str, Any], str]) -> None:
    async def act(caller: Callable[[], Caller]) -> None:
        one = caller()
        async with await one.peer.ask(one._http) as answer:
            assert f'<Reject reason="{case[1]}"/>' in await answer.text()

    against(act, TelephoneScene().with_settings(**case[0]))


def test_requests_without_twilios_signature_get_nothing() -> None:
    async def act(caller: Callable[[], Caller]) -> None:
        one = caller()
        forged = replace(one.account, auth_token="another")
        peer = TwilioPeer(forged, one._hear)
        async with await peer.ask(one._http) as answer:
            assert answer.status == 403
            assert (await answer.json())["error"]["code"] == "invalid_twilio_signature"
        async with await one.peer.ask(one._http) as answer:
            twiml = await answer.text()
        with pytest.raises(WSServerHandshakeError) as refused:
            await peer.connect(one._http, twiml)
        assert refused.value.status == 403
        other = TwilioPeer(replace(one.account, url="https://other.example"), one._hear)
        async with await other.ask(one._http) as answer:
            assert answer.status == 403

    against(act)


WRONG_STARTS: dict[str, dict[str, Any]] = {
    "no parameters": {"customParameters": {}},
    "the parameters of another call": {"callSid": "CA7"},
    "another caller": {"customParameters": {"caller": "+1", "until": "99", "proof": "00"}},
}


@pytest.mark.parametrize("start", WRONG_STARTS.values(), ids=WRONG_STARTS)
def test_a_stream_must_belong_to_a_call_that_was_let_in(start: dict[str, Any]) -> None:
    async def act(caller: Callable[[], Caller]) -> None:
        call = await caller().dial(**start)
        await call.peer.closed.wait()

    assert against(act).ended == ["unknown_call"]


def test_a_call_has_one_stream() -> None:
    async def act(caller: Callable[[], Caller]) -> None:
        call = await caller().dial()
        again = caller()
        again.peer = TwilioPeer(call.account, again._hear)
        await again.dial()
        await again.peer.closed.wait()
        await call.peer.hang_up()

    assert against(act).ended == ["unknown_call"]


BROKEN: dict[str, dict[str, Any]] = {
    "sound before the start": {"event": "media", "media": {"payload": "AA=="}},
    "a binary payload": {"event": "media", "media": {"payload": "!"}},
    "nothing": {},
}


@pytest.mark.parametrize("message", BROKEN.values(), ids=BROKEN)
def test_a_line_that_breaks_the_protocol_is_closed(message: dict[str, Any]) -> None:
    async def act(caller: Callable[[], Caller]) -> None:
        one = caller()
        headers = one.peer._signed("/telephone/twilio/stream", "wss", {})
        ws = await one._http.ws_connect("/telephone/twilio/stream", headers=headers)
        began = asyncio.get_running_loop().time()
        if message:
            await ws.send_json(message)
        with suppress(TypeError):
            while True:
                await ws.receive_str()
        took_s = asyncio.get_running_loop().time() - began
        assert took_s == pytest.approx(0 if message else START_TIMEOUT_S, abs=0.1)

    assert against(act).ended == ["protocol_error"]
