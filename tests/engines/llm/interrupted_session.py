"""A real session with an interrupted answer, for testing that a language model stops."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from core.conversation.events import PlayoutStarted, ResponseDone, SessionEvent
from engines.base import Llm
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import ResponseRequest, SessionSettings, TurnDetection
from tests.pipeline.fakes import World, collect, speak

SILENCE, ONE, TWO = 0, 1000, 2000
ANSWER_TOKENS = 120_000
"Number of tokens so large that only a cancelled server stops before the test ends."
PATIENCE_S = 120


class LlmWorld(World):
    """A `World` (recogniser of levels, voice of tones) with the given language model."""

    def __init__(self, llm: Llm) -> None:
        super().__init__(llm=llm)  # type: ignore[arg-type]  # what it asks is not looked at


Wait = Callable[[], Coroutine[Any, Any, None]]


async def interrupt_answer(llm: Llm, cancelled: Wait, *, began: Wait | None = None) -> None:
    """Runs one answer and interrupts it during generation and playout.

    cancelled: waits until the model's server has stopped. The session continues meanwhile, so only
    the interruption can be the cause. began: waits before that until the server has the request.
    """
    client_decides = TurnDetection(create_response=False)
    settings = SessionSettings(turn_detection=client_decides, max_output_tokens=ANSWER_TOKENS)
    events: list[SessionEvent] = []
    world = LlmWorld(llm)
    opened = Sessions(world.services(), world.conversations, 1).open(settings, paced_by="server")
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as tasks, opened as session:
        tasks.create_task(collect(session, events))
        await speak(session, (ONE, 600), (SILENCE, 900))
        session.create_response(ResponseRequest())
        while not any(isinstance(one, PlayoutStarted) for one in events):
            await speak(session, (SILENCE, 20))
        assert not any(isinstance(one, ResponseDone) for one in events)
        if began is not None:
            await began()
        cancellation = tasks.create_task(cancelled())
        await speak(session, (TWO, 800), (SILENCE, 900))
        await cancellation
        (done,) = (one for one in events if isinstance(one, ResponseDone))
        assert (done.status, done.reason) == ("cancelled", "turn_detected")
