"""The chat doors behind the real error handling, with a scripted model behind them."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from aiohttp import ClientResponse, ClientSession

from engines.base import Llm
from engines.llm.openai.engine import OpenAiLlm
from engines.llm.openai.settings import Settings
from pipeline.services import SessionServices
from pipeline.session.one_shot import OneShotResponses
from pipeline.shared.settings import SessionSettings
from server.config.sections.limits import LimitsConfig
from serving.remote.models import RemoteModels
from tests.engines.llm.openai.completions_server import Server as Upstream
from tests.pipeline.fakes import World
from tests.server.http.harness import serving
from tests.web.openai.speech.harness import UsualLanguage
from web.openai.chat.door import ChatDoor
from web.openai.chat.models import ChatModels
from web.openai.responses.door import ResponsesDoor
from web.openai.routes import chat_routes, response_routes

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
TIMEOUT_S = 20.0
HI: tuple[Mapping[str, Any], ...] = ({"role": "user", "content": "hi there"},)


@dataclass
class Server:
    client: ClientSession
    services: SessionServices
    assistant: OneShotResponses
    door: ChatDoor
    upstream: Upstream = field(default_factory=Upstream)

    @property
    def url(self) -> str:
        return str(self.client._base_url).rstrip("/")

    @property
    def llm(self) -> Llm:
        return self.services.engines.language_model("default")

    async def post(self, path: str = CHAT, **fields: Any) -> ClientResponse:
        body = {"model": "assistant", **fields}
        if path == CHAT:
            body = {"messages": HI, **body}
        return await self.client.post(path, json=body)


@asynccontextmanager
async def _serving(services: SessionServices, world: World) -> AsyncIterator[Server]:
    assistant = OneShotResponses(
        services,
        world.conversations,
        UsualLanguage(),
        default_settings=lambda: SessionSettings(instructions="Be brief."),
    )
    models = ChatModels(services, assistant)
    door = ChatDoor(models, services.clock, LimitsConfig().as_limits().chat, RemoteModels())
    responses = ResponsesDoor(door, models, services.clock)
    async with serving((*chat_routes(door), *response_routes(responses))) as client:
        yield Server(client, services, assistant, door)


def against(scene: Callable[[Server], Awaitable[None]], world: World | None = None) -> None:
    """Runs a scene with a model that only our own Protocol reaches."""

    async def run() -> None:
        given = world or World()
        async with _serving(given.services(), given) as server, asyncio.timeout(TIMEOUT_S):
            await scene(server)
            assert server.assistant.count == 0

    asyncio.run(run())


def against_upstream(scene: Callable[[Server], Awaitable[None]], upstream: Upstream) -> None:
    """Runs a scene with a model in a server of its own."""

    async def run() -> None:
        async with upstream.running():
            llm = OpenAiLlm(Settings(base_url=upstream.url, thinking=True))
            world = World()
            services = world.services()
            services = replace(
                services, engines=replace(services.engines, llm={"default": llm, "openai": llm})
            )
            async with aclosing(llm), _serving(services, world) as server:
                server.upstream = upstream
                async with asyncio.timeout(TIMEOUT_S):
                    await scene(server)

    asyncio.run(run())
