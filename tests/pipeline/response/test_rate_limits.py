"""Rate limits of the model's server reach the client after the response."""

import asyncio

import pytest

from core.conversation.events import ResponseDone
from core.conversation.usage import RateLimit, RateLimits
from engines.base import TextDelta, ToolCall
from pipeline.session.session import Session
from pipeline.shared.settings import ResponseRequest, SessionSettings
from tests.pipeline.fakes import names
from tests.pipeline.scenes import of, run_session
from tests.pipeline.scripted import Delta, said, world

TEXT = SessionSettings(modality="text")


def told(remaining: int, reset_s: float = 30) -> RateLimits:
    return RateLimits((RateLimit("requests", 60, remaining, reset_s),))


async def ask(session: Session) -> None:
    session.add_item(said("hello"))
    session.create_response(ResponseRequest())
    await session.settled()


def test_rate_limits_follow_the_response() -> None:
    there, _ = world([told(59), TextDelta("Hello.")])
    events = run_session(there, ask, TEXT)
    assert of(RateLimits, events) == [told(59)]
    order = names(events)
    assert order.index("RateLimits") == order.index("ResponseDone") + 1


def test_only_the_last_rate_limits_of_a_response_are_sent() -> None:
    """Each round of tools is a request."""
    there, _ = world([told(59), ToolCall("1", "add", {"a": 1, "b": 1})], [told(58), TextDelta("2")])
    assert of(RateLimits, run_session(there, ask, TEXT)) == [told(58)]


def test_the_reset_time_counts_from_the_report_of_the_server() -> None:
    there, llm = world([told(59, 30), TextDelta("Hello.")])
    llm.lasts_s = 10
    [limits] = of(RateLimits, run_session(there, ask, TEXT))
    assert limits.limits[0].reset_s == pytest.approx(20)


def test_a_cancelled_response_reports_its_rate_limits() -> None:
    there, llm = world([told(59), TextDelta("Hello.")])
    llm.lasts_s = 10

    async def scene(session: Session) -> None:
        session.add_item(said("hello"))
        session.create_response(ResponseRequest())
        await asyncio.sleep(1)
        session.cancel_response()
        await session.settled()

    events = run_session(there, scene, TEXT)
    assert [end.status for end in of(ResponseDone, events)] == ["cancelled"]
    assert len(of(RateLimits, events)) == 1


def test_no_rate_limits_are_sent_if_the_server_reports_none() -> None:
    rounds: list[Delta] = [TextDelta("Hello.")]
    assert not of(RateLimits, run_session(world(rounds)[0], ask, TEXT))
