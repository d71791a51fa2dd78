"""Servers that are busy, broken or slow: one retry, or a clear error without secrets."""

import asyncio
import socket
from contextlib import aclosing

import pytest

from core.errors import EngineError, EngineTimeout, EngineUnreachable, OverloadedError
from engines.base import LlmOptions, Message
from engines.llm.openai.engine import OpenAiLlm
from engines.llm.openai.settings import Settings
from tests.engines.llm.openai.completions_server import (
    Answer,
    Server,
    answers,
    breaks_after,
    collect_reply,
    delta,
    open_client,
    refuses,
    reply_text,
    sends,
    sse,
    text,
)

pytestmark = pytest.mark.live

KEY = "sk-very-secret"

GOOD = sends(sse(*text("Good.")))

RETRIES: dict[str, tuple[list[Answer], int]] = {
    "not ready": ([refuses(503), GOOD], 2),
    "no server behind the proxy": ([refuses(502), GOOD], 2),
    "busy for a moment": ([refuses(429, Retry_After="0"), GOOD], 2),
    "the connection breaks at once": ([breaks_after(b""), GOOD], 2),
    "and after a greeting": (
        [breaks_after(sse(delta(role="assistant", content=""), done=False)), GOOD],
        2,
    ),
    "counts are unknown": ([refuses(400, {"error": "stream_options: extra field"}), GOOD], 2),
}


@pytest.mark.parametrize("case", RETRIES)
def test_a_request_is_retried_before_the_first_token(case: str) -> None:
    script, asked = RETRIES[case]
    server = Server(*script)
    assert reply_text(answers(server)) == "Good."
    assert len(server.bodies) == asked


def test_token_counts_are_not_requested_again_without_support() -> None:
    server = Server(refuses(400, {"error": "unknown field"}), GOOD)

    async def scenario() -> None:
        async with open_client(server) as llm:
            await collect_reply(llm)
            await collect_reply(llm)

    asyncio.run(scenario())
    assert ["stream_options" in body for body in server.bodies] == [True, False, False]


def test_a_model_that_refuses_sampling_options_is_remembered() -> None:
    """It refuses the limit's old name, too, and names one option at a time."""
    limit = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    error = {"message": "'temperature' may only be 1.", "code": "unsupported_value"}
    server = Server(
        refuses(400, {"error": {"message": limit}}), refuses(400, {"error": error}), GOOD
    )

    async def scenario() -> None:
        async with open_client(server) as llm:
            for _ in range(2):
                await collect_reply(llm, options=LlmOptions(temperature=0.7, top_p=0.9))

    asyncio.run(scenario())
    assert ["temperature" in body for body in server.bodies] == [True, True, False, False]
    assert ["top_p" in body for body in server.bodies] == [True, True, False, False]
    assert [body.get("max_completion_tokens") for body in server.bodies] == [None, 512, 512, 512]


def test_a_temperature_out_of_range_does_not_affect_later_requests() -> None:
    why = {"error": {"message": "temperature must be at most 1"}}
    server = Server(refuses(400, why), refuses(400, why), GOOD)

    async def scenario() -> None:
        async with open_client(server) as llm:
            with pytest.raises(EngineError, match="at most 1"):
                await collect_reply(llm, options=LlmOptions(temperature=1.5))
            await collect_reply(llm, options=LlmOptions(temperature=0.5))

    asyncio.run(scenario())
    assert server.bodies[-1]["temperature"] == 0.5


def test_another_name_of_the_token_limit_is_remembered() -> None:
    why = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    server = Server(refuses(400, {"error": {"message": why}}), GOOD)

    async def scenario() -> None:
        async with open_client(server) as llm:
            await collect_reply(llm)
            await collect_reply(llm)

    asyncio.run(scenario())
    limits = [body.get("max_completion_tokens") for body in server.bodies]
    assert limits == [None, 512, 512]
    assert ["max_tokens" in body for body in server.bodies] == [True, False, False]
    assert all("stream_options" in body for body in server.bodies)


ONE = sse(delta(content="One."), done=False)

FAILURES: dict[str, tuple[list[Answer], type[Exception], str, int]] = {
    "busy for long": (
        [refuses(429, {"error": {"message": "slow down"}}, Retry_After="30"), GOOD],
        OverloadedError,
        "quota.*slow down",
        1,
    ),
    "busy twice": ([refuses(503)], OverloadedError, "not ready", 2),
    "wrong key": (
        [refuses(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}})],
        EngineError,
        r"api_key.*\*\*\*",
        1,
    ),
    "too long, and it repeats what was said": (
        [refuses(400, {"error": {"message": "too long: 'my private words', 9 tokens"}})],
        EngineError,
        r"too long: '\[\.\.\.\]', 9 tokens",
        2,
    ),
    "unknown model": ([refuses(404, {"detail": "no such model"})], EngineError, "no such model", 1),
    "a proxy's page": (
        [sends(b"<html>", "text/html", 500)],
        EngineError,
        r"its server failed \(500\)$",
        1,
    ),
    "a redirect": ([refuses(307, Location="http://127.0.0.1:9/")], EngineError, "307", 1),
    "broken twice": ([breaks_after(b"")], EngineUnreachable, "connection broke", 2),
    "broken after the first token": (
        [breaks_after(ONE), GOOD],
        EngineUnreachable,
        "connection broke",
        1,
    ),
    "just stops": ([sends(ONE), GOOD], EngineUnreachable, "connection broke", 1),
    "fails in the middle": (
        [sends(ONE + sse({"error": {"message": "out of\nmemory", "code": 500}}))],
        EngineError,
        "out of memory",
        1,
    ),
    "fails as an object": (
        [sends(sse({"object": "error", "message": "no luck"}))],
        EngineError,
        "no luck",
        1,
    ),
    "not JSON": ([sends(ONE + sse("{my private words"))], EngineError, "not a chunk", 1),
    "JSON of another kind": ([sends(sse({"choices": "none"}))], EngineError, "not a chunk", 1),
    "not UTF-8": ([sends(ONE + b"data: \xff\n\n")], EngineError, "not UTF-8", 1),
    "an endless line": ([sends(b"data: " + b"x" * 2_000_000)], EngineError, "more than", 1),
    "half a call": (
        [
            sends(
                sse(
                    delta(
                        "length",
                        tool_calls=[
                            {"index": 0, "function": {"name": "light", "arguments": '{"a'}}
                        ],
                    )
                )
            )
        ],
        EngineError,
        "'light' whose arguments",
        1,
    ),
}


@pytest.mark.parametrize("case", FAILURES)
def test_a_failure_is_reported_without_secrets(case: str) -> None:
    script, kind, message, asked = FAILURES[case]
    server = Server(*script)

    async def scenario() -> None:
        async with open_client(server, api_key=KEY) as llm:
            await collect_reply(llm, [Message("user", "my private words")])

    with pytest.raises(kind, match=message) as caught:
        asyncio.run(scenario())
    assert type(caught.value) is kind
    assert KEY not in str(caught.value)
    assert "private words" not in str(caught.value)
    assert len(server.bodies) == asked


def test_a_missing_server_is_reported_at_once() -> None:
    llm = OpenAiLlm(Settings(base_url="http://127.0.0.1:9/v1", model="x"))

    async def scenario() -> None:
        async with aclosing(llm):
            await llm.warm("en", ())  # logs it, and the server starts nevertheless
            await collect_reply(llm)

    with pytest.raises(EngineUnreachable, match=r"127\.0\.0\.1:9.*refused"):
        asyncio.run(scenario())


def test_a_host_that_does_not_react_times_out_soon() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        address = deaf.getsockname()
        with socket.create_connection(address):  # it queues one connection, and drops later ones
            url = f"http://127.0.0.1:{address[1]}/v1"
            settings = Settings(base_url=url, model="x", context_tokens=512, connect_timeout_s=0.1)

            async def scenario() -> None:
                async with aclosing(OpenAiLlm(settings)) as llm:
                    await collect_reply(llm)

            with pytest.raises(EngineUnreachable, match=r"no connection within 0\.1 s"):
                asyncio.run(scenario())


@pytest.mark.parametrize(
    ("sent", "limits", "message"),
    [
        (b"", {"first_token_timeout_s": 0.2}, "no first token within 0.2 s"),
        (sse(delta(role="assistant"), done=False), {"first_token_timeout_s": 0.2}, "no first"),
        (ONE, {"token_timeout_s": 0.1}, "no data for 0.1 s in the middle"),
        (ONE + b": still here\n\n", {"token_timeout_s": 0.1}, "no data for 0.1 s"),
    ],
)
def test_a_server_that_hangs_times_out(sent: bytes, limits: dict[str, float], message: str) -> None:
    server = Server()
    server.answers = [server.hangs_after(sent)]

    async def scenario() -> None:
        async with open_client(server, **limits) as llm:
            with pytest.raises(EngineTimeout, match=message):
                await collect_reply(llm)
            await server.left.wait()

    asyncio.run(scenario())
    assert len(server.bodies) == 1
