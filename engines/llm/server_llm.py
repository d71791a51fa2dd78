"""The `Llm` that starts a model server with OpenAI's completions, watches it and asks it over HTTP.

The engines `vllm` and `llama_cpp` describe their server; this does the rest for both.
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

from core.errors import ConfigError, EngineCrashed, EngineUnreachable
from core.events import RateLimits, TokenUsage
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, CallDelta, LlmOptions, Message, TextDelta, ToolCall
from engines.llm import openai
from engines.runtime.external_server.program import ServerProgram, http_health, reserve_port
from engines.runtime.external_server.supervisor import ServerSupervisor

if TYPE_CHECKING:
    from engines.llm.openai.engine import OpenAiLlm

HOST = "127.0.0.1"
"Address at which the server listens: only programs of this machine reach it."


def check_own_options(
    engine: str,
    request: Iterable[str],
    own_keys: Collection[str],
    extra_args: Iterable[str],
    own_args: Collection[str],
) -> None:
    """Raises ConfigError for an option that only the engine sets. `request`: keys of the setting
    with that name, and `own_keys` those of them that the engine sets. `extra_args`: arguments of
    the server's program, and `own_args` the options among them that the engine sets."""
    for key in request:
        if key in own_keys:
            raise ConfigError(f"llm.{engine}: request: {key} is set by the engine itself")
    for argument in extra_args:
        name = argument.partition("=")[0].replace("_", "-")
        if name in own_args:
            raise ConfigError(f"llm.{engine}: extra_args: {name} is set by the engine itself")


@dataclass(frozen=True, slots=True)
class CompletionServer:
    """Program of a model server, and how it is asked."""

    name: str
    "Name of the engine."
    command: Callable[[int], Sequence[str]]
    """Returns program and arguments for a port. The key is not among them, because every user of
    the machine can read a command line."""
    variables: Callable[[str], Mapping[str, str]]
    "Returns the environment variables for a key."
    client_settings: Callable[[str, str], openai.Settings]
    "Returns the settings of the engine `openai` for the address of the server and a key."
    port: int = 0
    "Port on loopback; 0: a free one."
    start_timeout_s: float = 900.0
    "Longest time from the start until the server answers."
    languages: tuple[str, ...] = ()
    "ISO 639-1 codes of what the model understands; (): any."
    context_tokens: int | None = None
    "Tokens of prompt and answer together; None: the server tells it."
    max_concurrency: int | None = None
    "Number of answers that the server writes at once; None: not known."
    accepts_images: bool = False


class ServerLlm:
    """An `Llm` that can be used while `running` is entered.

    The engine `openai` writes equal messages as equal text. So each prompt begins with the previous
    one, and the server finds that part in its prefix cache.
    """

    def __init__(self, server: CompletionServer) -> None:
        self._server = server
        self.name = server.name
        self.languages = server.languages
        self.context_tokens: int | None = server.context_tokens
        self.max_concurrency: int | None = server.max_concurrency
        self.accepts_images = server.accepts_images
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
            raise self._lost(exc) from exc

    async def forward(
        self, path: str, body: Mapping[str, object], private_texts: Sequence[str]
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
            raise self._lost(exc) from exc

    def _supervised(self) -> ServerSupervisor:
        if self._supervisor is None:
            raise EngineCrashed("llm", self.name, "its server has not been started")
        return self._supervisor

    def _lost(self, error: EngineUnreachable) -> EngineCrashed:
        return EngineCrashed("llm", self.name, f"its server was lost: {error.detail}")
