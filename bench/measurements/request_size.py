"""Measures the size of requests to a language model: `python -m bench.measurements.request_size`.

A server in this process takes the requests of the engines `openai` and `hybrid` for the bundled
home: with all tools, and with only the tools that the sentence may need. A real server (`--url`)
counts and times them.
"""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from bench.server.stub_engines.scheduled_asr import NullMetrics, RunningLoopClock
from core.conversation.usage import TokenUsage
from core.errors import EngineError
from core.ports import UNKNOWN_LOCATION, ToolContext, ToolSpec
from engines.base import Llm, Message, ToolFilterLlm
from engines.llm import hybrid, openai
from engines.llm.chat_messages import chat_tools
from pipeline.conversation.instructions import bundled_instructions
from pipeline.tools.home import Home, default_home
from pipeline.tools.selection import relevant_tools
from pipeline.tools.skills import ClockTools, HomeTools, ListTools, Timers, TimerTools
from pipeline.tools.toolbox import Toolbox

BYTES_PER_TOKEN = 3.5
"""Estimate for JSON and English with the tokenizers of today's models; each differs by up to a
fifth."""

LONG_TIMEOUTS: dict[str, Any] = {"first_token_timeout_s": 600.0, "token_timeout_s": 60.0}
"Limits for a processor, which reads a long prompt for minutes."

SENTENCES = (
    "what is the capital of France",
    "I would like to read in the kitchen",
    "could you perhaps dim the kitchen lights a little",
    "my eggs need to boil, what do you suggest",
)
"Sentences that `hybrid` does not understand by itself as commands."

ANSWER_STREAM = (
    b'data: {"choices":[{"delta":{"content":"Yes."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


@dataclass
class FakeModelServer:
    """Server that answers with one word and records the sizes of requests."""

    sizes_bytes: list[int] = field(default_factory=list[int])

    async def complete(self, request: web.Request) -> web.Response:
        self.sizes_bytes.append(len(await request.read()))
        return web.Response(body=ANSWER_STREAM, content_type="text/event-stream")

    async def models(self, request: web.Request) -> web.Response:
        listed = {"id": "model", "owned_by": "vllm", "max_model_len": 32_768}
        return web.json_response({"data": [listed]})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Runs the server and yields its address."""
        app = web.Application(client_max_size=2**20)
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.models)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        finally:
            await runner.cleanup()


class SilentAnnouncer:
    """Announcer that announces nothing."""

    async def announce(self, conversation_id: str, text: str) -> bool:
        return False


def toolbox() -> Toolbox:
    """Returns the tools of the bundled home."""
    home, clock = Home(default_home()), RunningLoopClock()
    timers = TimerTools(Timers(home, clock, SilentAnnouncer()))
    return Toolbox([HomeTools(home), ListTools(home), timers, ClockTools(clock)], NullMetrics())


@dataclass(frozen=True, slots=True)
class RequestCost:
    """Cost of one request."""

    size_bytes: int
    tokens: int | None = None
    "Size of the prompt by the server's count; None: not measured."
    first_token_ms: float = 0.0

    def __str__(self) -> str:
        size = f"{self.size_bytes / 1000:.1f} kB"
        if self.tokens is None:
            return f"{size}, ~{self.size_bytes / BYTES_PER_TOKEN:.0f}"
        return f"{size}, {self.tokens}, {self.first_token_ms:.0f} ms"


async def ask(llm: Llm, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> RequestCost:
    """Returns tokens and the time to the first one; the fake server knows the size."""
    now = asyncio.get_running_loop().time
    began, first, tokens = now(), 0.0, 0
    try:
        async with aclosing(llm.reply(messages, tools, language="en")) as deltas:
            async for delta in deltas:
                first = first or now()
                if isinstance(delta, TokenUsage):
                    tokens = delta.input_tokens
    except EngineError as error:  # a small model writes malformed tool calls
        print(f"  ({error})")
    return RequestCost(0, tokens, 1000 * ((first or now()) - began))


def with_tools(messages: Sequence[Message], tools: Sequence[ToolSpec]) -> list[Message]:
    """Puts the tools into the system prompt, as the templates of Qwen and others do.

    Not every small model's template supports tools.
    """
    system, *others = messages
    listed = "\n".join(json.dumps(tool) for tool in chat_tools(tools))
    return [Message("system", f"{system.text}\n\n# Tools\n\n{listed}"), *others]


async def measure(url: str, sentences: int) -> None:
    """Prints a line for each sentence. url: a server that counts and answers too; empty: none."""
    tools, fake_server = toolbox().specs(ToolContext("", "en")), FakeModelServer()
    text = bundled_instructions().prompt("", "en", datetime.now(UTC).date(), UNKNOWN_LOCATION)
    what = "request, tokens, first token" if url else "request, tokens by estimate"
    print(f"{what:46} {'all tools':>22} {'openai':>22} {'hybrid':>22}")
    async with fake_server.running() as own_url, AsyncExitStack() as stack:

        def engines(base_url: str) -> list[tuple[Llm, bool]]:
            plain = openai.create(openai.Settings(base_url=base_url, **LONG_TIMEOUTS))
            model_settings = hybrid.ModelSettings("openai", {"base_url": base_url, **LONG_TIMEOUTS})
            both = hybrid.create(hybrid.Settings(model_settings))
            for engine in (plain, both):
                stack.push_async_callback(engine.aclose)
            return [(plain, True), (plain, False), (both, False)]

        on_fake_server = engines(own_url)
        plain = engines(url)[0][0] if url else None
        for number, sentence in enumerate(SENTENCES[:sentences]):
            row: list[RequestCost] = []
            for place, (llm, has_all_tools) in enumerate(on_fake_server):
                # A different beginning each time, so that the server's cache has nothing of it.
                system = Message("system", f"{number}{place}. {text}")
                messages = [system, Message("user", sentence)]
                needs_home = isinstance(llm, ToolFilterLlm)
                chosen = relevant_tools(tools, messages, "en", needs_home=needs_home)
                shown = tools if has_all_tools else chosen
                await ask(llm, messages, shown)
                cost = RequestCost(fake_server.sizes_bytes.pop())
                if plain is not None:
                    declared = (
                        llm.filter_tools(shown, language="en")
                        if isinstance(llm, ToolFilterLlm)
                        else shown
                    )
                    asked = await ask(plain, with_tools(messages, declared), ())
                    cost = replace(asked, size_bytes=cost.size_bytes)
                row.append(cost)
            print(f"{sentence:46} " + " ".join(f"{cost!s:>22}" for cost in row))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m bench.measurements.request_size", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--url",
        default="",
        help="address of a real server, ending in /v1, that counts and times the requests",
    )
    parser.add_argument(
        "--sentences", type=int, default=len(SENTENCES), help="number of sentences (%(default)s)"
    )
    given = parser.parse_args()
    asyncio.run(measure(given.url, given.sentences))
