"""The `Llm` that starts a vLLM server, watches it and asks it over HTTP."""

import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any

from core.errors import EngineCrashed, EngineUnreachable
from core.events import RateLimits, TokenUsage
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, CallDelta, LlmOptions, Message, TextDelta, ToolCall
from engines.llm import openai
from engines.llm.vllm.command_line import HOST, command, http_settings, variables
from engines.llm.vllm.environment import VllmEnvironment
from engines.llm.vllm.settings import NAME, Settings
from engines.runtime.external_server.program import ServerProgram, http_health, reserve_port
from engines.runtime.external_server.supervisor import ServerSupervisor

if TYPE_CHECKING:
    from engines.llm.openai.engine import OpenAiLlm


class VllmLlm:
    """An `Llm` that can be used while `running` is entered.

    The engine `openai` writes equal messages as equal text. So each prompt begins with the previous
    one, and vLLM finds that part in its prefix cache.
    """

    name = NAME

    def __init__(self, settings: Settings, environment: VllmEnvironment) -> None:
        self._settings, self._environment = settings, environment
        self.languages = settings.languages
        self.context_tokens: int | None = settings.max_model_len
        self._llm: OpenAiLlm | None = None
        self._supervisor: ServerSupervisor | None = None
        self.url = ""
        "Address of the server; empty before it is started."

    @property
    def accepts_images(self) -> bool:
        """True if the model takes images."""
        return bool(self._settings.request.get("images"))

    @property
    def pid(self) -> int | None:
        """Process id of the server; None while it does not run."""
        return self._supervisor.pid if self._supervisor else None

    @property
    def is_ready(self) -> bool:
        """True while the server answers."""
        return self._supervisor is not None and self._supervisor.state == "up"

    @property
    def restarts(self) -> int:
        """Number of restarts since `running` was entered."""
        return self._supervisor.restarts if self._supervisor else 0

    async def ready(self) -> None:
        """Waits until a restarted server is up. Raises EngineCrashed if it is given up."""
        await self._supervised().ready()

    async def changed(self) -> None:
        """Waits until the server goes down, comes up or is given up."""
        await self._supervised().changed()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the server while entered; it is up when the body begins.

        One task enters and leaves it, once per object. Raises EngineError if the server does not
        come up. Other exceptions than EngineError from the body come out in an ExceptionGroup.
        """
        key = secrets.token_urlsafe(32)
        with reserve_port("llm", NAME, HOST, self._settings.port) as port:
            self.url = f"http://{HOST}:{port}"
            program = ServerProgram(
                kind="llm",
                name=NAME,
                command=command(self._settings, self._environment, port),
                variables=variables(self._settings, self._environment, key),
                secret=key,
                start_timeout_s=self._settings.start_timeout_s,
            )
            client_settings = http_settings(self._settings, self.url, key)
            async with http_health(f"{self.url}/health") as probe:
                self._supervisor = program.supervisor(probe)
                llm = self._llm = openai.create(client_settings, NAME)
                async with self._supervisor.running(), aclosing(llm):
                    await llm.warm("", ())
                    self.context_tokens = llm.context_tokens
                    yield

    async def reply(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        *,
        language: str,
        options: LlmOptions = AS_CONFIGURED,
    ) -> AsyncGenerator[TextDelta | CallDelta | ToolCall | TokenUsage | RateLimits, None]:
        """Streams the answer (see `Llm.reply`).

        Raises EngineCrashed at once while the server is down, and when it dies during an answer.
        """
        self._supervised().check()
        assert self._llm is not None
        answer = self._llm.reply(messages, tools, language=language, options=options)
        try:
            async with aclosing(answer) as parts:
                async for part in parts:
                    yield part
        except EngineUnreachable as exc:
            raise EngineCrashed("llm", NAME, f"its server was lost: {exc.detail}") from exc

    async def forward(
        self, path: str, body: Mapping[str, Any], private_texts: Sequence[str]
    ) -> AsyncGenerator[str, None]:
        """Sends a request on (see `CompletionServerLlm.forward`). Raises EngineCrashed as
        `reply`."""
        self._supervised().check()
        assert self._llm is not None
        try:
            async with aclosing(self._llm.forward(path, body, private_texts)) as texts:
                async for text in texts:
                    yield text
        except EngineUnreachable as exc:
            raise EngineCrashed("llm", NAME, f"its server was lost: {exc.detail}") from exc

    def _supervised(self) -> ServerSupervisor:
        if self._supervisor is None:
            raise EngineCrashed("llm", NAME, "its server has not been started")
        return self._supervisor
