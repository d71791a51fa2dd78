"""Rate limits are read from a server's headers and come with the answer."""

import asyncio
from contextlib import aclosing
from typing import Any

import pytest
from aiohttp import web

from core.conversation.usage import RateLimit, RateLimits
from engines.base import Message, TextDelta
from engines.llm.openai.completion_stream import read_rate_limits, reset_s
from tests.engines.llm.openai.completions_server import (
    Answer,
    Server,
    open_client,
    refuses,
    sse,
    text,
)

pytestmark = pytest.mark.live

RESETS: list[tuple[str, float | None]] = [
    ("1s", 1),
    ("6m0s", 360),
    ("120ms", 0.12),
    ("8.64s", 8.64),
    ("1h2m3.5s", 3723.5),
    ("1d", 86400),
    ("250us", 0.00025),
    ("0", 0),
    ("0s", 0),
    ("12", 12),
    ("1.5", 1.5),
    ("", None),
    ("soon", None),
    ("s", None),
    ("1s later", None),
    ("-1s", None),
    ("1e9", None),
    ("٣s", None),
    ("2026-11-23T03:00:00Z", None),
    ("9" * 400, None),
]


@pytest.mark.parametrize(("header", "seconds"), RESETS)
def test_reset_times_are_read_in_all_formats_of_servers(header: str, seconds: float | None) -> None:
    found = reset_s(header)
    assert found is None if seconds is None else found == pytest.approx(seconds)


def headers(**said: str) -> dict[str, str]:
    return {f"x-ratelimit-{name.replace('_', '-')}": value for name, value in said.items()}


REQUESTS = headers(limit_requests="60", remaining_requests="59", reset_requests="1s")
TOKENS = headers(limit_tokens="150000", remaining_tokens="149984", reset_tokens="6m0s")
BOTH = RateLimits((RateLimit("requests", 60, 59, 1), RateLimit("tokens", 150000, 149984, 360)))

HEADERS: list[tuple[dict[str, str], RateLimits | None]] = [
    ({**TOKENS, **REQUESTS}, BOTH),
    (TOKENS, RateLimits(BOTH.limits[1:])),
    ({}, None),
    ({**REQUESTS, **headers(reset_requests="tomorrow")}, None),
    ({**REQUESTS, **headers(remaining_requests="-1")}, None),
    ({**REQUESTS, **headers(limit_requests="9" * 5000)}, None),
    (headers(limit_requests="60", remaining_requests="59"), None),
]


@pytest.mark.parametrize(("said", "limits"), HEADERS)
def test_an_incomplete_limit_is_ignored(said: dict[str, str], limits: RateLimits | None) -> None:
    assert read_rate_limits(said) == limits


def test_the_reset_time_decreases_with_elapsed_time() -> None:
    assert [one.reset_s for one in BOTH.after(10).limits] == [0, 350]


def says(said: dict[str, str]) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        body = sse(*text("Hi."))
        return web.Response(body=body, content_type="text/event-stream", headers=said)

    return answer


def received_items(*script: Answer) -> list[Any]:
    async def scenario() -> list[Any]:
        async with open_client(Server(*script)) as llm:
            reply = llm.reply([Message("user", "hi")], (), language="en")
            async with aclosing(reply) as deltas:
                return [delta async for delta in deltas]

    return asyncio.run(scenario())


def test_limits_come_with_the_answer() -> None:
    named_otherwise = {name.title(): value for name, value in {**REQUESTS, **TOKENS}.items()}
    assert received_items(says(named_otherwise)) == [BOTH, TextDelta("Hi.")]


def test_only_limits_of_the_answered_request_count() -> None:
    refused = refuses(503, None, **{name.replace("-", "_"): "0" for name in REQUESTS})
    assert received_items(refused, says(TOKENS)) == [RateLimits(BOTH.limits[1:]), TextDelta("Hi.")]


def test_a_server_without_a_quota_gives_no_limits() -> None:
    assert received_items(says({"x-ratelimit-limit-requests": "60"})) == [TextDelta("Hi.")]
