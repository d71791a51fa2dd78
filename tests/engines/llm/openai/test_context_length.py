"""Prompts that are too long for the server: an error of their own, and one shorter retry."""

import asyncio
from contextlib import aclosing, nullcontext
from typing import Any, cast

import pytest

from core.errors import ContextLengthExceeded, EngineError
from core.ports import ToolContext
from engines.base import Message, ToolCall
from engines.llm.openai.context_length import is_about_length
from pipeline.conversation.context_window import message_tokens
from pipeline.response.generation import TextGeneration
from pipeline.response.plan import ResponsePlan
from pipeline.shared.settings import ContextTruncation
from pipeline.tools.calls.rounds import ToolAccess
from pipeline.tools.toolbox import Toolbox
from tests.engines.llm.openai.completions_server import (
    Answer,
    Server,
    collect_reply,
    open_client,
    refuses,
    reply_text,
    sends,
    sse,
    text,
)
from tests.pipeline.fakes import Counts

pytestmark = pytest.mark.live

GOOD = sends(sse(*text("Good.")))

SAID: dict[str, tuple[int, Any]] = {
    "OpenAI": (
        400,
        {
            "error": {
                "message": "This model's maximum context length is 128000 tokens. However, your "
                "messages resulted in 130011 tokens. Please reduce the length of the messages.",
                "type": "invalid_request_error",
                "param": "messages",
                "code": "context_length_exceeded",
            }
        },
    ),
    "OpenAI, newer": (
        400,
        {"error": {"message": "Your input exceeds the context window of this model."}},
    ),
    "vLLM": (
        400,
        {
            "object": "error",
            "message": "This model's maximum context length is 512 tokens. However, you requested "
            "640 tokens (512 in the messages, 128 in the completion).",
            "code": 400,
        },
    ),
    "vLLM, which names a field that other servers want": (
        400,
        {
            "error": {
                "message": "'max_tokens' or 'max_completion_tokens' is too large: 128. This "
                "model's maximum context length is 512 tokens and your request has 500 input "
                "tokens (128 > 512 - 500)."
            }
        },
    ),
    "vLLM, of its engine": (
        400,
        {"error": {"message": "The decoder prompt (length 640) is longer than the maximum model "
                   "length of 512."}},
    ),
    "llama.cpp": (
        400,
        {
            "error": {
                "code": 400,
                "message": "the request exceeds the available context size, try increasing it",
                "type": "exceed_context_size_error",
                "n_prompt_tokens": 640,
                "n_ctx": 512,
            }
        },
    ),
    "Ollama": (400, {"error": "the input length exceeds the context length"}),
    "Ollama, which may not cut": (
        400,
        {"error": {"message": "prompt too long; exceeded max context length by 128 tokens"}},
    ),
    "SGLang": (
        400,
        {"message": "The input (640 tokens) is longer than the model's context length (512)."},
    ),
    "TGI": (
        422,
        {"error": "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 512."},
    ),
    "a proxy with a limit of bytes": (413, None),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_a_refusal_for_length_has_its_own_error(case: str) -> None:
    """There is one request only, because no other form of it would help."""
    status, body = SAID[case]
    server = Server(refuses(status, body))
    with pytest.raises(ContextLengthExceeded) as caught:
        answered(server)
    assert caught.value.code == "context_length_exceeded"
    assert len(server.bodies) == 1


OTHERS = [
    "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.",
    "temperature: too large: must be <= 2",
    "Extra inputs are not permitted: stream_options",
    "messages must alternate between user and assistant",
]


@pytest.mark.parametrize("said", OTHERS)
def test_other_refusals_are_not_reported_as_too_long(said: str) -> None:
    assert not is_about_length(said)
    with pytest.raises(EngineError) as caught:
        answered(Server(refuses(400, {"error": {"message": said}})))
    assert caught.value.code == "engine_failed"


def test_a_refusal_for_length_may_come_in_the_stream() -> None:
    problem = {"error": {"message": "Requested tokens exceed context window of 512"}}
    with pytest.raises(ContextLengthExceeded, match="of 512"):
        answered(Server(sends(sse(problem))))


def answered(server: Server) -> str:
    async def scenario() -> str:
        async with open_client(server) as llm:
            return reply_text(await collect_reply(llm))

    return asyncio.run(scenario())


def user(word: str) -> Message:
    return Message("user", f"{word} " + "and so on " * 20)


def exchange(word: str) -> list[Message]:
    call = Message("assistant", "", (ToolCall(f"call_{word}", "light", {"on": word}),))
    result = Message("tool", '{"done": true}', call_id=f"call_{word}")
    return [user(word), call, result, Message("assistant", f"{word} is on.")]


SYSTEM = Message("system", "Be brief.")
PROMPT = [SYSTEM, *exchange("one"), *exchange("two"), *exchange("three"), user("four")]


def generated(*script: Answer, allowed: bool = True, prompt: list[Message] = PROMPT) -> Any:
    """Returns the text or the error code, and the messages of each request."""
    server = Server(*script)

    async def scenario() -> str:
        async with open_client(server, context_tokens=8192) as llm:
            plan = ResponsePlan(
                turn=cast(Any, None),
                modality="text",
                language="en",
                instructions="",
                voice="",
                speed=1,
                llm=llm,
                tts=cast(Any, None),
                truncation=ContextTruncation(is_allowed=allowed),
            )
            context = ToolContext("conv_1", "en")
            hands = ToolAccess(Toolbox([], Counts()), context, at_once, lambda item: None)
            generation = TextGeneration(plan, prompt, hands, nullcontext, Counts())
            async with aclosing(generation.stream()) as deltas:
                return "".join([delta async for delta in deltas if isinstance(delta, str)])

    try:
        said: Any = asyncio.run(scenario())
    except EngineError as exc:
        said = exc.code
    return said, [body["messages"] for body in server.bodies]


async def at_once() -> None:
    """Does not wait."""


@pytest.mark.parametrize("case", SAID)
def test_half_of_the_conversation_is_sent_again(case: str) -> None:
    said, (whole, half) = generated(refuses(*SAID[case]), GOOD)
    assert said == "Good."
    assert half[0] == whole[0] == {"role": "system", "content": "Be brief."}
    assert half[-1] == whole[-1]
    assert half[1:] == whole[-len(half) + 1 :]  # only the oldest messages are left out
    first = next(at for at, m in enumerate(PROMPT) if m.text.startswith("three"))
    assert len(half) == 1 + len(PROMPT) - first
    kept = sum(map(message_tokens, PROMPT[first:]))
    assert kept <= sum(map(message_tokens, PROMPT[1:])) / 2


def test_no_tool_result_loses_its_call() -> None:
    _, (_, half) = generated(refuses(413), GOOD)
    called = [call["id"] for m in half for call in m.get("tool_calls", ())]
    assert called == [m["tool_call_id"] for m in half if m["role"] == "tool"] == ["call_three"]


def test_a_shorter_prompt_is_tried_only_once() -> None:
    said, asked = generated(refuses(*SAID["vLLM"]))
    assert (said, len(asked)) == ("context_length_exceeded", 2)


def test_nothing_is_left_out_if_truncation_is_off() -> None:
    said, asked = generated(refuses(*SAID["vLLM"]), GOOD, allowed=False)
    assert (said, len(asked)) == ("context_length_exceeded", 1)


def test_a_prompt_that_cannot_be_shortened_is_not_sent_again() -> None:
    said, asked = generated(refuses(*SAID["vLLM"]), GOOD, prompt=[SYSTEM, Message("user", "Hi.")])
    assert (said, len(asked)) == ("context_length_exceeded", 1)


def test_a_started_answer_is_not_repeated() -> None:
    """The answer broke off in the middle, and the user has its first words."""
    begun = sse(*text("Once")[:1], {"error": {"message": "context size exceeded"}})
    said, asked = generated(sends(begun), GOOD)
    assert (said, len(asked)) == ("context_length_exceeded", 1)


@pytest.mark.parametrize(
    ("loaded", "context_tokens"),
    [
        ({"models": [{"name": "tiny", "context_length": 16384}]}, 16384),
        ({"models": [{"model": "tiny", "context_length": 8192}]}, 8192),
        ({"models": [{"name": "another", "context_length": 16384}]}, 4096),
        ({"models": [{"name": "tiny"}]}, 4096),
        ({"models": 7}, 4096),
        (None, 4096),
    ],
)
def test_the_context_of_a_loaded_model_is_read_from_ollama(
    loaded: Any, context_tokens: int
) -> None:
    server = Server(models={"data": [{"id": "tiny", "owned_by": "library"}]})
    server.loaded = loaded

    async def scenario() -> int | None:
        async with open_client(server) as llm:
            await collect_reply(llm)
            return llm.context_tokens

    assert asyncio.run(scenario()) == context_tokens


def test_ollama_is_queried_again_until_the_model_is_loaded() -> None:
    server = Server(models={"data": [{"id": "tiny", "owned_by": "library"}]})
    server.loaded = {"models": []}

    async def scenario() -> list[int | None]:
        known: list[int | None] = []
        async with open_client(server) as llm:
            for loaded in ([], [{"name": "tiny", "context_length": 32768}], []):
                server.loaded = {"models": loaded}
                await collect_reply(llm)
                known.append(llm.context_tokens)
        return known

    assert asyncio.run(scenario()) == [4096, 32768, 32768]
    assert server.listings == 2


def test_a_name_without_a_tag_means_the_latest_of_ollama() -> None:
    server = Server(models={"data": [{"id": "qwen3:latest", "owned_by": "library"}]})
    server.models["data"].append({"id": "another:1b", "owned_by": "library"})
    server.loaded = {"models": [{"name": "qwen3:latest", "context_length": 16384}]}

    async def scenario() -> int | None:
        async with open_client(server, model="qwen3", thinking=False) as llm:
            for _ in range(3):
                await collect_reply(llm)
            assert await llm.probe()
            return llm.context_tokens

    assert asyncio.run(scenario()) == 16384
    assert server.listings == 2, "once for the answers, once for the probe"
    for body in server.bodies:
        assert body["model"] == "qwen3"
        assert body["reasoning_effort"] == "none"
        assert "chat_template_kwargs" not in body


def test_an_exact_name_has_precedence_over_the_latest_tag() -> None:
    entries = [
        {"id": "tiny:latest", "max_model_len": 2048},
        {"id": "tiny", "max_model_len": 4096},
    ]
    server = Server(models={"data": entries})

    async def scenario() -> int | None:
        async with open_client(server, model="tiny") as llm:
            await collect_reply(llm)
            return llm.context_tokens

    assert asyncio.run(scenario()) == 4096
