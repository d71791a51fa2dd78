"""Reasoning is switched off with the fields of each server, which are detected once."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from engines.base import AS_CONFIGURED, LlmOptions, Message
from engines.llm.openai.server_info import NO_THINKING_BY_EFFORT, NO_THINKING_BY_TEMPLATE
from engines.llm.openai.settings import Settings
from engines.llm.transformers.settings import Settings as TransformersSettings
from tests.engines.llm.openai.completions_server import (
    Server,
    collect_reply,
    open_client,
    refuses,
    reply_text,
    sends,
    sse,
    text,
)

pytestmark = pytest.mark.live

FIELDS = ("chat_template_kwargs", "reasoning_effort")
HELLO = sends(sse(*text("Hello.")))


def owned_by(owner: Any) -> Any:
    return {"data": [{"id": "tiny", "owned_by": owner}]}


def thoughts(body: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a request about reasoning."""
    return {field: body[field] for field in FIELDS if field in body}


def asked(
    server: Server, turns: int = 1, options: LlmOptions = AS_CONFIGURED, **settings: Any
) -> list[dict[str, Any]]:
    """Returns the fields of each request about reasoning."""

    async def scenario() -> None:
        async with open_client(server, thinking=False, **settings) as llm:
            for _ in range(turns):
                assert reply_text(await collect_reply(llm, options=options)) == "Hello."

    asyncio.run(scenario())
    return [thoughts(body) for body in server.bodies]


@pytest.mark.parametrize(
    ("owner", "said"),
    [
        ("vllm", NO_THINKING_BY_TEMPLATE),
        ("sglang", NO_THINKING_BY_TEMPLATE),
        ("llamacpp", NO_THINKING_BY_TEMPLATE),
        ("library", NO_THINKING_BY_EFFORT),
        ("openai", NO_THINKING_BY_EFFORT),
        ("system", NO_THINKING_BY_EFFORT),
        ("somebody", {**NO_THINKING_BY_TEMPLATE, **NO_THINKING_BY_EFFORT}),
        (None, {**NO_THINKING_BY_TEMPLATE, **NO_THINKING_BY_EFFORT}),
        (7, {**NO_THINKING_BY_TEMPLATE, **NO_THINKING_BY_EFFORT}),
    ],
)
def test_each_server_gets_its_own_fields(owner: Any, said: Mapping[str, Any]) -> None:
    server = Server(models=owned_by(owner))
    assert asked(server) == [said]
    assert server.listings == 1


def test_the_owner_of_a_configured_model_is_queried_once() -> None:
    server = Server(models=owned_by("vllm"))
    assert asked(server, 3, model="tiny", context_tokens=4096) == [NO_THINKING_BY_TEMPLATE] * 3
    assert server.listings == 1


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}, AS_CONFIGURED),
        ({"extra_body": {"reasoning_effort": "high"}}, AS_CONFIGURED),
        ({"extra_body": {"think": True}}, AS_CONFIGURED),
        ({"starts_thinking": True}, AS_CONFIGURED),
        ({}, LlmOptions(reasoning_effort="high")),
    ],
)
def test_requested_reasoning_is_not_switched_off(
    settings: dict[str, Any], options: LlmOptions
) -> None:
    answer = HELLO
    if settings.get("starts_thinking"):
        answer = sends(sse(*text("so</think>Hello.")))
    (said,) = asked(Server(answer, models=owned_by("x")), options=options, **settings)
    wished = {"reasoning_effort": options.reasoning_effort} if options.reasoning_effort else {}
    extra = settings.get("extra_body", {})
    assert said == {**{name: extra[name] for name in FIELDS if name in extra}, **wished}


def test_reasoning_can_be_allowed() -> None:
    async def scenario() -> None:
        async with open_client(server, thinking=True) as llm:
            await collect_reply(llm)

    server = Server(models=owned_by("vllm"))
    asyncio.run(scenario())
    assert thoughts(server.bodies[0]) == {}
    assert not Settings(base_url="http://x/v1").thinking
    assert not TransformersSettings(path="/x").thinking


UNKNOWN = "Unrecognized request argument supplied: reasoning_effort"
BAD_VALUE = "Unsupported value: 'reasoning_effort' does not support 'none' with this model."
NO_MINIMAL = "Unsupported value: 'reasoning_effort' does not support 'minimal' with this model."


def error(message: str) -> Any:
    return {"error": {"message": message}}


@pytest.mark.parametrize(
    ("owner", "refusals", "said"),
    [
        ("openai", [UNKNOWN], [{}]),
        ("openai", [BAD_VALUE], [{"reasoning_effort": "minimal"}]),
        (
            "openai",
            [BAD_VALUE, NO_MINIMAL],
            [{"reasoning_effort": "minimal"}, {"reasoning_effort": "low"}],
        ),
        ("x", ["extra fields not permitted: chat_template_kwargs"], [NO_THINKING_BY_EFFORT]),
        ("x", [UNKNOWN], [NO_THINKING_BY_TEMPLATE]),
        (
            "x",
            ["unknown field chat_template_kwargs", UNKNOWN],
            [NO_THINKING_BY_EFFORT, {}],
        ),
    ],
)
def test_a_refused_field_is_left_out_of_later_requests(
    owner: str, refusals: list[str], said: list[dict[str, Any]]
) -> None:
    answers = [*(refuses(400, error(one)) for one in refusals), HELLO]
    server = Server(*answers, models=owned_by(owner))
    _, *later = asked(server, turns=2)
    assert later == [*said, said[-1]]


def test_fields_are_dropped_if_a_refusal_does_not_name_one() -> None:
    server = Server(
        refuses(400, error("bad request")),
        refuses(400, error("bad request")),
        HELLO,
        models=owned_by("x"),
    )
    both, without_counts, plain, later = asked(server, turns=2)
    assert set(both) == set(without_counts) == set(FIELDS)
    assert plain == later == {}
    assert ["stream_options" in body for body in server.bodies] == [True, False, True, True]


def test_a_lower_default_effort_does_not_change_a_requested_one() -> None:
    server = Server(refuses(400, error(BAD_VALUE)), HELLO, models=owned_by("openai"))

    async def scenario() -> None:
        async with open_client(server, thinking=False) as llm:
            await collect_reply(llm)
            await collect_reply(
                llm, [Message("user", "x")], options=LlmOptions(reasoning_effort="low")
            )

    asyncio.run(scenario())
    said = [body.get("reasoning_effort") for body in server.bodies]
    assert said == ["none", "minimal", "low"]
