"""A real session whose answer is interrupted, for language models that must notice it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from core.events import PlayoutStarted, ResponseDone, SessionEvent
from engines.base import Llm
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import ResponseRequest, SessionSettings, TurnDetection
from tests.pipeline.fakes import World, collect, speak

SILENCE, ONE, TWO = 0, 1000, 2000
ANSWER_TOKENS = 120_000
"Number of tokens so large that a server still writes when the test ends, unless it was stopped."
PATIENCE_S = 120


class AnsweredBy(World):
    """A world that hears levels, speaks tones, and uses the given model."""

    def __init__(self, llm: Llm) -> None:
        super().__init__(llm=llm)  # type: ignore[arg-type]  # what it asks is not looked at


Wait = Callable[[], Coroutine[Any, Any, None]]


async def spoken_over(llm: Llm, cancelled: Wait, *, began: Wait | None = None) -> None:
    """Runs one answer that is interrupted while it plays and is being generated. `cancelled` waits
    until the model's server has noticed, while the session goes on, so only the interruption can
    end it. `began` waits, before that, until the server has seen the request."""
    asks_itself = TurnDetection(create_response=False)
    settings = SessionSettings(turn_detection=asks_itself, max_output_tokens=ANSWER_TOKENS)
    events: list[SessionEvent] = []
    world = AnsweredBy(llm)
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
        over = tasks.create_task(cancelled())
        await speak(session, (TWO, 800), (SILENCE, 900))
        await over
        (done,) = (one for one in events if isinstance(one, ResponseDone))
        assert (done.status, done.reason) == ("cancelled", "turn_detected")
