"""A real session whose answer is spoken over, for language models that have to notice it."""

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
"A model's server that nobody stops is still writing when all is over."
PATIENCE_S = 120


class AnsweredBy(World):
    """Hears levels, speaks tones, and asks the given model."""

    def __init__(self, llm: Llm) -> None:
        super().__init__(llm=llm)  # type: ignore[arg-type]  # what it asks is not looked at


Wait = Callable[[], Coroutine[Any, Any, None]]


async def spoken_over(llm: Llm, cancelled: Wait, *, began: Wait | None = None) -> None:
    """One answer, interrupted while it sounds and is being written. `cancelled` waits until the
    model's server has seen it, while the session goes on: nothing but the interruption ends it.
    `began`: before that, until the server has seen the request."""
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
