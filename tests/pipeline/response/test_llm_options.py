"""Options of the session or of one response reach the language model."""

from pipeline.session.session import Session
from pipeline.shared.settings import ResponseRequest, SessionSettings
from tests.pipeline.fakes import World
from tests.pipeline.scenes import run_session

CAREFUL = SessionSettings(modality="text", parallel_tool_calls=False, reasoning_effort="low")


def asked(settings: SessionSettings, *requests: ResponseRequest) -> list[tuple[object, object]]:
    world = World()

    async def scene(session: Session) -> None:
        for request in requests:
            session.create_response(request)
            await session.settled()

    run_session(world, scene, settings)
    options = world.llm.options_asked
    return [(one.parallel_tool_calls, one.reasoning_effort) for one in options]


def test_one_response_may_override_the_options_of_the_session() -> None:
    differs = ResponseRequest(parallel_tool_calls=True, reasoning_effort="high")
    said = asked(CAREFUL, ResponseRequest(), differs, ResponseRequest())
    assert said == [(False, "low"), (True, "high"), (False, "low")]


def test_options_that_are_not_set_are_left_to_the_engine() -> None:
    assert asked(SessionSettings(modality="text"), ResponseRequest()) == [(None, None)]
