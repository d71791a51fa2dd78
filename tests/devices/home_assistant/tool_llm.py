"""A language model that has the tools of a house."""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager

from core.ports import ToolContext, ToolSpec
from engines.base import AS_CONFIGURED, LlmOptions, Message, TextDelta, ToolCall
from pipeline.session.one_shot import OneShotRequest, OneShotResponses
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.tools.home import Home, HomeConfig
from pipeline.tools.skills import ClockTools
from server.compose.home_assistant import run_home_assistant
from server.config.sections.home_assistant import HomeAssistantConfig
from tests.devices.home_assistant.fake_server import TOKEN
from tests.devices.home_assistant.harness import until
from tests.pipeline.fakes import Counts, EchoLlm, ManualClock, World

CONTEXT = ToolContext("conv_1", "en")


class Asks(EchoLlm):
    """A language model that turns the kitchen lights on and repeats the result."""

    def __init__(self) -> None:
        super().__init__()
        self.offered: list[str] = []

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | ToolCall, None]:
        self.offered = [tool.name for tool in tools]
        if messages[-1].role == "tool":
            yield TextDelta(messages[-1].text)
        elif "time" in messages[-1].text:
            yield ToolCall("call_1", "HassGetCurrentTime", {})
        elif "sentence" in messages[-1].text:
            yield ToolCall("call_1", "home_assistant", {"text": "turn on the kitchen lights"})
        else:
            wanted = {"name": "Kitchen Lights", "domain": ["light"]}
            yield ToolCall("call_1", "HassTurnOn", wanted)


@asynccontextmanager
async def earshot(url: str, token: str = TOKEN) -> AsyncIterator[World]:
    """Runs Earshot's parts as the server assembles them."""
    config = HomeAssistantConfig(url=url, token=token, use="tools")
    clock = ManualClock()
    async with run_home_assistant(config, Home(HomeConfig()), clock, Counts()) as parts:
        assert parts is not None
        yield World(llm=Asks(), providers=(*parts.providers, ClockTools(clock)))


async def ask(world: World, text: str) -> str:
    exchanges = OneShotResponses(world.services(), world.conversations, TextLanguageDetector())
    async with exchanges.open(OneShotRequest(text, language="en")) as exchange:
        return await exchange.text()


async def has_tools(world: World) -> None:
    toolbox = world.services().toolbox
    await until(lambda: "HassTurnOn" in toolbox.names(CONTEXT))
