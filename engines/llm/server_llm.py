"""Runs a model server that has OpenAI's completions API, and generates answers with it over HTTP.

The engines `vllm` and `llama_cpp` describe their server in a `CompletionServer`.
"""

import secrets
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from core.conversation.usage import RateLimits, TokenUsage
from core.errors import ConfigError, EngineCrashed, EngineUnreachable
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, CallDelta, LlmOptions, Message, TextDelta, ToolCall
from engines.llm import openai
from engines.runtime.external_server.program import ServerProgram, http_health, reserve_port
from engines.runtime.external_server.supervisor import ServerSupervisor

if TYPE_CHECKING:
    from engines.llm.openai.engine import OpenAiLlm

HOST = "127.0.0.1"
"Address at which the server listens: only programs of this machine reach it."


def check_reserved_options(
    engine: str,
    request_keys: Iterable[str],
    reserved_keys: Collection[str],
    extra_args: Iterable[str],
    reserved_args: Collection[str],
) -> None:
    """Raises ConfigError if the operator sets an option that only the engine sets.

    request_keys: keys of the setting `request`.
    reserved_keys: keys that must not be in it.
    extra_args: the setting `extra_args`, arguments of the server's program.
    reserved_args: options that must not be in it, as in `--port`.
    """
    for key in request_keys:
        if key in reserved_keys:
            raise ConfigError(f"llm.{engine}: request: {key} is set by the engine itself")
    for argument in extra_args:
        name = argument.partition("=")[0].replace("_", "-")
        if name in reserved_args:
            raise ConfigError(f"llm.{engine}: extra_args: {name} is set by the engine itself")


@dataclass(frozen=True, slots=True)
class CompletionServer:
    """Describes a model server: how to start it, and how to send it requests."""

    name: str
    "Name of the engine."
    command: Callable[[int], Sequence[str]]
    """Returns program and arguments for a port. They do not contain the key, because every user of
    the machine can read a command line."""
    variables: Callable[[str], Mapping[str, str]]
    "Returns the environment variables of the server, with the key that its clients must send."
    client_settings: Callable[[str, str], openai.Settings]
    "Returns the settings of the engine `openai` for a server's address (without `/v1`) and key."
    port: int = 0
    "Port on loopback; 0: a free one."
    start_timeout_s: float = 900.0
    "Longest time from the start until the server is healthy."
    languages: tuple[str, ...] = ()
    "ISO 639-1 codes of what the model understands; (): any."
    context_tokens: int | None = None
    "Tokens of prompt and answer together; None: the server reports the number."
    max_concurrency: int | None = None
    "Number of answers that the server writes at once; None: not known."
    accepts_images: bool = False


class ServerLlm:
    """An `Llm` that can be used while `running` is entered.

    Each prompt begins with the previous prompt of its conversation, character for character. So the
    server finds that part in its prefix cache.
    """

    def __init__(self, server: CompletionServer) -> None:
        self._server = server
        self.name = server.name
        self.languages = server.languages
        self.context_tokens: int | None = server.context_tokens
        self.max_concurrency: int | None = server.max_concurrency
        self.accepts_images = server.accepts_images
        self.holds_format = True
        "llama-server and vLLM hold a grammar."
        self._llm: OpenAiLlm | None = None
        self._supervisor: ServerSupervisor | None = None
        self.url = ""
        "Address of the server; empty before it is started."

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
        """Waits until a restarted server is up.

        Raises EngineCrashed if all restarts failed.
        """
        await self._started_supervisor().wait_until_ready()

    async def changed(self) -> None:
        """Waits until the server goes down, comes up, or all restarts failed."""
        await self._started_supervisor().wait_for_change()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs the server while the context is open; the server is up when the body begins.

        Enter it once per object, and leave it in the task that entered it. Raises EngineError if
        the server does not come up. Exceptions of the body other than EngineError are raised in an
        ExceptionGroup.
        """
        server, key = self._server, secrets.token_urlsafe(32)
        with reserve_port("llm", self.name, HOST, server.port) as port:
            self.url = f"http://{HOST}:{port}"
            program = ServerProgram(
                kind="llm",
                name=self.name,
                command=server.command(port),
                variables=server.variables(key),
                secret=key,
                start_timeout_s=server.start_timeout_s,
            )
            client_settings = server.client_settings(self.url, key)
            async with http_health(f"{self.url}/health") as probe:
                self._supervisor = program.supervisor(probe)
                llm = self._llm = openai.create(client_settings, self.name)
                async with self._supervisor.running(), aclosing(llm):
                    await llm.warm("", ())  # asks for the size of the context window
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
        self._started_supervisor().check()
        assert self._llm is not None
        answer = self._llm.reply(messages, tools, language=language, options=options)
        try:
            async with aclosing(answer) as parts:
                async for part in parts:
                    yield part
        except EngineUnreachable as exc:
            raise self._server_lost(exc) from exc

    async def forward(
        self, path: str, body: Mapping[str, object], private_texts: Sequence[str]
    ) -> AsyncGenerator[str, None]:
        """Passes a request on (see `CompletionServerLlm.forward`).

        Raises EngineCrashed in the same cases as `reply`.
        """
        self._started_supervisor().check()
        assert self._llm is not None
        try:
            async with aclosing(self._llm.forward(path, body, private_texts)) as texts:
                async for text in texts:
                    yield text
        except EngineUnreachable as exc:
            raise self._server_lost(exc) from exc

    def _started_supervisor(self) -> ServerSupervisor:
        if self._supervisor is None:
            raise EngineCrashed("llm", self.name, "its server has not been started")
        return self._supervisor

    def _server_lost(self, error: EngineUnreachable) -> EngineCrashed:
        return EngineCrashed("llm", self.name, f"its server was lost: {error.detail}")
