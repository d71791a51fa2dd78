"""Clauses of several listeners in one thread: who runs out of sound first is served first."""

import asyncio
from collections.abc import AsyncIterator
from threading import Event

import pytest

from core.audio import silence
from engines.base import TtsInfo
from engines.base.voice import SOUND_UNTIL_S
from engines.tts.shared import synthesis_thread
from engines.tts.shared.synthesis_thread import ClauseReceiver, SpeechChunk, ThreadedSynthesis

pytestmark = pytest.mark.live

RATE_HZ = 16_000


async def text_chunks(text: str) -> AsyncIterator[str]:
    yield text


def test_a_listener_without_sound_comes_before_those_who_still_hear() -> None:
    synthesis = ThreadedSynthesis(TtsInfo("slow", RATE_HZ, {"en": ("a",)}))
    spoken: list[str] = []
    is_busy, may_go_on = Event(), Event()

    def synthesise(clause: str, receiver: ClauseReceiver) -> None:
        spoken.append(clause)
        if clause == "running":
            is_busy.set()
            may_go_on.wait()
        receiver.put(SpeechChunk(silence(20, RATE_HZ)))

    async def speak(clause: str, sound_s: float | None) -> None:
        if sound_s is not None:
            SOUND_UNTIL_S.set(asyncio.get_running_loop().time() + sound_s)
        async for _ in synthesis.speak(text_chunks(clause), synthesise, None):
            pass

    async def main() -> None:
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            tasks.create_task(speak("running", None))
            await asyncio.to_thread(is_busy.wait)
            waiting = [("later", 3.0), ("soon", 0.5), ("begins", None), ("stands still", -1.0)]
            for clause, sound_s in waiting:
                tasks.create_task(speak(clause, sound_s))
            dropped = tasks.create_task(speak("dropped", -2.0))
            for _ in range(3):
                await asyncio.sleep(0)
            dropped.cancel()
            await asyncio.sleep(0)
            may_go_on.set()

    asyncio.run(main())
    assert spoken == ["running", "stands still", "begins", "soon", "later"]


@pytest.mark.parametrize(
    ("ahead_s", "within_s", "expected"),
    [
        (60.0, 30.0, ["later", "begins", "later"]),
        (0.2, 30.0, ["later", "begins"]),  # its listener has hardly any sound left
        (60.0, 0.0, ["later", "begins"]),  # it is near its end
    ],
)
def test_a_clause_that_has_just_begun_gives_way_once(
    ahead_s: float, within_s: float, expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(synthesis_thread, "INTERRUPTED_WITHIN_S", within_s)
    synthesis = ThreadedSynthesis(TtsInfo("slow", RATE_HZ, {"en": ("a",)}))
    spoken: list[str] = []
    is_busy = Event()
    received: dict[str, int] = {}

    def synthesise(clause: str, receiver: ClauseReceiver) -> None:
        """Runs for half a second at first, unless it is stopped, as a model does."""
        spoken.append(clause)
        stopped = Event()
        receiver.on_cancel(stopped.set)
        if clause == "later" and not is_busy.is_set():
            is_busy.set()
            if stopped.wait(0.5):
                raise RuntimeError("the run was stopped")
        receiver.put(SpeechChunk(silence(20, RATE_HZ)))

    async def speak(clause: str, sound_s: float | None) -> None:
        if sound_s is not None:
            SOUND_UNTIL_S.set(asyncio.get_running_loop().time() + sound_s)
        async for frame in synthesis.speak(text_chunks(clause), synthesise, None):
            received[clause] = received.get(clause, 0) + len(frame.pcm)

    async def main() -> None:
        async with asyncio.timeout(30), asyncio.TaskGroup() as tasks:
            tasks.create_task(speak("later", ahead_s))
            await asyncio.to_thread(is_busy.wait)
            tasks.create_task(speak("begins", None))

    asyncio.run(main())
    assert spoken == expected
    assert received["later"] == received["begins"] == 320  # each clause is heard once


def test_a_clause_that_is_cancelled_after_it_gave_way_never_runs_again() -> None:
    receivers = [ClauseReceiver(asyncio.new_event_loop()) for _ in range(3)]
    for one in receivers:
        one.on_cancel(lambda: None)
        one.interrupt()
        assert not one.put(SpeechChunk(silence(20, RATE_HZ)))
    receivers[1].cancel()
    assert [one.resume() for one in receivers] == [True, False, True]
    receivers[0].on_cancel(lambda: pytest.fail("it gave way before"))
    receivers[0].interrupt()
    assert receivers[0].put(SpeechChunk(silence(20, RATE_HZ)))
    assert not receivers[0].resume()
