"""Clauses of several listeners in one thread: who runs out of sound first is served first."""

import asyncio
from collections.abc import AsyncIterator
from threading import Event

import pytest

from core.audio import silence
from engines.base import TtsInfo
from engines.base.voice import SOUND_UNTIL_S
from engines.tts.synthesis_thread import ClauseReceiver, SpeechChunk, ThreadedSynthesis

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
