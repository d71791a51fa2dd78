"""A server process whose scripted language model calls a tool, says its result, or counts."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.engines.llm.openai.completions_server import Server, delta, server_in_thread, sse, text
from tests.server.process import Running, serving

LONG = "One two three four five six seven eight nine ten eleven twelve."
HELD = ('{"on"', ": true")
"Pieces of the answer in a form, without its end, after an answer in words."
CALL = delta(
    tool_calls=[
        {"index": 0, "id": "c1", "function": {"name": "set_light", "arguments": '{"on": true}'}}
    ]
)


async def answer(request: web.Request) -> web.StreamResponse:
    """Calls the client's tool if the text mentions a light, says a tool's result, or counts."""
    asked = await request.json()
    last = asked["messages"][-1]
    if "response_format" in asked:
        return held_answer(asked)
    if last["role"] == "tool":
        chunks = text(f"It says {json.loads(last['content'])['state']}.")
    elif last["content"] == "never end":
        return await never_ending(request)
    elif "light" in last["content"]:
        chunks = [delta(content="One moment."), CALL, delta("tool_calls")]
    else:
        chunks = text(f"{LONG} {LONG}" if last["content"] == "count on" else LONG)
    counts = {"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 7}}
    return web.Response(body=sse(*chunks, counts), content_type="text/event-stream")


def held_answer(asked: dict[str, Any]) -> web.Response:
    """Answers in JSON, as a grammar of the schema would hold it. It refuses tools besides, because
    a model that is held by a grammar calls none."""
    if asked.get("tools"):
        message = "tools and response_format exclude each other"
        return web.json_response({"error": {"message": message}}, status=400)
    has_said = "assistant" in [message["role"] for message in asked["messages"][-2:]]
    chunks = text(*HELD, "}") if has_said else text('{"on"', ": false}")
    counts = {"choices": [], "usage": {"prompt_tokens": 40, "completion_tokens": 9}}
    return web.Response(body=sse(*chunks, counts), content_type="text/event-stream")


async def never_ending(request: web.Request) -> web.StreamResponse:
    """Yields a sentence, then never anything again."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(sse(*text(LONG + " ")[:-1], done=False))
    await asyncio.Event().wait()
    return response


@contextmanager
def answering(folder: Path, *arguments: str, **settings: str) -> Iterator[Running]:
    """Runs `earshot serve` with that model."""
    with server_in_thread(Server(answer)) as upstream:
        model = {"EARSHOT_LLM__ENGINE": "openai", "EARSHOT_LLM__OPTIONS__BASE_URL": upstream.url}
        with serving(folder, *arguments, settings={**model, **settings}) as server:
            server.url = server.url.rstrip("/")
            yield server
