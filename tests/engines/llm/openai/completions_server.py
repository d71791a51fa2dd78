"""A real HTTP server with scripted chat completions, and helpers for the engine as its client."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager
from threading import Event, Thread
from typing import Any

from aiohttp import web

from core.conversation.usage import RateLimits, TokenUsage
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, CallDelta, Llm, LlmOptions, Message, TextDelta, ToolCall
from engines.llm.openai.engine import OpenAiLlm
from engines.llm.openai.settings import Settings

PATIENCE_S = 60

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


def sse(*chunks: Any, done: bool = True) -> bytes:
    """Returns chunks as a server sends them."""
    ends = ["[DONE]"] if done else []
    return "".join(
        f"data: {chunk if isinstance(chunk, str) else json.dumps(chunk)}\n\n"
        for chunk in (*chunks, *ends)
    ).encode()


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def text(*pieces: str) -> list[dict[str, Any]]:
    return [*(delta(content=piece) for piece in pieces), delta("stop")]


def sends(body: bytes, kind: str = "text/event-stream", status: int = 200) -> Answer:
    """Sends the whole body at once."""

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.Response(body=body, content_type=kind, status=status)

    return answer


def refuses(status: int, body: Any = None, **headers: str) -> Answer:
    async def answer(request: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(body, status=status, headers=named)

    return answer


def breaks_after(body: bytes) -> Answer:
    """Closes the connection after `body`; with an empty `body`, before the headers."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        if body:
            await response.prepare(request)
            await response.write(body)
        assert request.transport is not None
        request.transport.close()
        return response

    return answer


class Server:
    """Sends one answer for each request in turn. The last answer is repeated."""

    def __init__(self, *answers: Answer, models: Any = None, props: Any = None) -> None:
        self.answers = list(answers) or [sends(sse(*text("Hello.")))]
        self.models = {"data": [{"id": "tiny"}]} if models is None else models
        self.props = props
        self.loaded: Any = None
        "Ollama's answer about the models in memory."
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[Any] = []
        self.listings = 0
        self.peers: set[Any] = set()
        "The connections on which completions were requested."
        self.left = asyncio.Event()
        "Set when a client closed the connection while `hangs_after` was waiting."
        self.url = ""

    def hangs_after(self, body: bytes) -> Answer:
        """Sends `body`, then waits until the client disconnects."""

        async def answer(request: web.Request) -> web.StreamResponse:
            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            if body:
                await response.prepare(request)
                await response.write(body)
            try:
                await asyncio.Event().wait()
            finally:
                self.left.set()
            return response

        return answer

    async def complete(self, request: web.Request) -> web.StreamResponse:
        self.bodies.append(await request.json())
        self.headers.append(request.headers)
        assert request.transport is not None
        self.peers.add(request.transport.get_extra_info("peername"))
        answer = self.answers[min(len(self.bodies), len(self.answers)) - 1]
        return await answer(request)

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        self.listings += 1
        if isinstance(self.models, int):
            return web.json_response({"error": "no"}, status=self.models)
        return web.json_response(self.models)

    async def show_props(self, request: web.Request) -> web.StreamResponse:
        if self.props is None:
            raise web.HTTPNotFound
        if isinstance(self.props, int):
            return web.json_response({"error": "no"}, status=self.props)
        return web.json_response(self.props)

    async def show_running(self, request: web.Request) -> web.StreamResponse:
        if self.loaded is None:
            raise web.HTTPNotFound
        return web.json_response(self.loaded)

    @asynccontextmanager
    async def running(self, limit_s: float | None = PATIENCE_S) -> AsyncIterator["Server"]:
        app = web.Application()
        app.router.add_post("/v1/chat/completions", self.complete)
        app.router.add_get("/v1/models", self.list_models)
        app.router.add_get("/props", self.show_props)
        app.router.add_get("/api/ps", self.show_running)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.01)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        try:
            async with asyncio.timeout(limit_s):
                yield self
        finally:
            await runner.cleanup()


async def collect_reply(
    llm: Llm,
    messages: Sequence[Message] = (Message("user", "hi"),),
    tools: Sequence[ToolSpec] = (),
    options: LlmOptions = AS_CONFIGURED,
) -> list[TextDelta | ToolCall | TokenUsage]:
    async with aclosing(llm.reply(messages, tools, language="en", options=options)) as deltas:
        return [delta async for delta in deltas if not isinstance(delta, CallDelta | RateLimits)]


def reply_text(deltas: Sequence[TextDelta | ToolCall | TokenUsage]) -> str:
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))


@asynccontextmanager
async def open_client(server: Server, **settings: Any) -> AsyncIterator[OpenAiLlm]:
    """Opens a client of the server. `thinking` is True by default, so that requests have no fields
    that turn thoughts off."""
    async with server.running():
        llm = OpenAiLlm(Settings(base_url=server.url, **{"thinking": True, **settings}))
        async with aclosing(llm):
            yield llm


def answers(server: Server, **settings: Any) -> list[TextDelta | ToolCall | TokenUsage]:
    async def scenario() -> list[TextDelta | ToolCall | TokenUsage]:
        async with open_client(server, **settings) as llm:
            return await collect_reply(llm)

    return asyncio.run(scenario())


@contextmanager
def server_in_thread(server: Server) -> Iterator[Server]:
    """Runs the server in a thread of its own, for tests with several loops."""
    running, over = Event(), Event()

    async def scenario() -> None:
        async with server.running(None):
            running.set()
            await asyncio.to_thread(over.wait)

    thread = Thread(target=lambda: asyncio.run(scenario()))
    thread.start()
    try:
        assert running.wait(PATIENCE_S)
        yield server
    finally:
        over.set()
        thread.join()
