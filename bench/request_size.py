"""How large the requests to a language model are: `python -m bench.request_size`.

A server in this process takes the requests of the engines `openai` and `hybrid` for the bundled
home, with all tools and with those that what was said may need.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from aiohttp import web

from bench.stub_model import LoopTime, Unmeasured
from core.ports import NOWHERE, ToolContext
from engines.base import Declares, Llm, Message
from engines.llm import hybrid, openai
from pipeline.home import Home, default_home
from pipeline.instructions import bundled
from pipeline.relevant_tools import relevant_tools
from pipeline.skills import ClockTools, HomeTools, ListTools, Timers, TimerTools
from pipeline.tools import Toolbox

BYTES_PER_TOKEN = 3.5
"Of JSON and English in the tokenizers of today's models; each of them differs by a fifth."

SENTENCES = (
    "what is the capital of France",
    "I would like to read in the kitchen",
    "could you perhaps dim the kitchen lights a little",
    "my eggs need to boil, what do you suggest",
)
"None of them is a command that `hybrid` understands by itself."

DONE = (
    b'data: {"choices":[{"delta":{"content":"Yes."},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)


@dataclass
class Sink:
    """A server that answers with a word."""

    sizes_bytes: list[int] = field(default_factory=list[int])

    async def complete(self, request: web.Request) -> web.Response:
        self.sizes_bytes.append(len(await request.read()))
        return web.Response(body=DONE, content_type="text/event-stream")

    async def models(self, request: web.Request) -> web.Response:
        listed = {"id": "model", "owned_by": "vllm", "max_model_len": 32_768}
        return web.json_response({"data": [listed]})

    @asynccontextmanager
    async def running(self) -> AsyncIterator[str]:
        """Its address."""
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


class Nobody:
    """An Announcer that nobody hears."""

    async def announce(self, conversation_id: str, text: str) -> bool:
        return False


def toolbox() -> Toolbox:
    """The tools of the bundled home."""
    home, clock = Home(default_home()), LoopTime()
    timers = TimerTools(Timers(home, clock, Nobody()))
    return Toolbox([HomeTools(home), ListTools(home), timers, ClockTools(clock)], Unmeasured())


async def measure() -> None:
    """Print a line for each sentence."""
    tools, sink = toolbox().specs(ToolContext("", "en")), Sink()
    today = datetime.now(UTC).date()
    system = Message("system", bundled().prompt("", "en", today, NOWHERE))
    print(
        f"{'request in kB (and tokens, about)':50} {'all tools':>14} {'openai':>14} {'hybrid':>14}"
    )
    async with sink.running() as url:
        options = {"base_url": url}
        plain = openai.create(openai.Settings(**options))
        model = hybrid.ModelSettings("openai", options)
        both = hybrid.create(hybrid.Settings(model))
        async with aclosing(plain), aclosing(both):
            for sentence in SENTENCES:
                messages = [system, Message("user", sentence)]
                engines: list[tuple[Llm, bool]] = [(plain, True), (plain, False), (both, False)]
                for llm, is_whole in engines:
                    needs_home = isinstance(llm, Declares)
                    chosen = relevant_tools(tools, messages, "en", needs_home=needs_home)
                    shown = tools if is_whole else chosen
                    async with aclosing(llm.reply(messages, shown, language="en")) as deltas:
                        async for _ in deltas:
                            pass
                row = [
                    f"{size / 1000:.1f} ({size / BYTES_PER_TOKEN:.0f})" for size in sink.sizes_bytes
                ]
                print(f"{sentence:50} " + " ".join(f"{cell:>14}" for cell in row))
                sink.sizes_bytes.clear()


if __name__ == "__main__":
    asyncio.run(measure())
