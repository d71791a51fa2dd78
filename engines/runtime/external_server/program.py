"""Description of a model server program, its port, and a health check over HTTP.

The code is the same for every program: command, variables, port and health check come from the
engine that uses it.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import aiohttp

from core.errors import EngineError
from engines.runtime.external_server.output_log import ServerLog
from engines.runtime.external_server.process import GRACE_S, start_server
from engines.runtime.external_server.supervisor import ServerSupervisor, SupervisedServer

HealthProbe = Callable[[], Awaitable[bool]]
"Function that returns True if a server is healthy. It must end within seconds."

PROBE_TIMEOUT_S = 5.0
"Timeout of a health check. It answers within milliseconds; on a swapping machine within seconds."


@dataclass(frozen=True, slots=True)
class ServerProgram:
    """Program of a model server that an engine starts.

    Example:
        with reserve_port("tts", "parrot", "127.0.0.1", 0) as port:
            program = ServerProgram("tts", "parrot", ["parrot", "--port", str(port)])
            async with http_health(f"http://127.0.0.1:{port}/health") as probe:
                supervisor = program.supervisor(probe)
                async with supervisor.running():        # it is up
                    supervisor.check()                  # before each request
    """

    kind: str
    "Kind of the engine, such as llm. It is named in errors and in the log."
    name: str
    "Name of the engine."
    command: Sequence[str]
    "Program and arguments. Every user of the machine can read them, so no secret goes here."
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    "Environment variables that are added to our own. Secrets go here."
    secret: str = field(default="", repr=False)
    "Text that is replaced by `***` in the log and in errors; empty: nothing is."
    start_timeout_s: float = 900.0
    "Longest time from the start until the server is up."
    grace_s: float = GRACE_S
    "Time from the request to end until the server is killed."

    def supervisor(self, probe: HealthProbe) -> ServerSupervisor:
        """Returns a supervisor that starts this program. `probe`: its health check."""
        log = ServerLog(f"{self.kind}.{self.name}", self.secret, _loop_time_s)
        return ServerSupervisor(
            SupervisedServer(
                kind=self.kind,
                name=self.name,
                start=lambda: start_server(self.command, self.variables, log, self.grace_s),
                probe=probe,
                last_output=log.summary,
                start_timeout_s=self.start_timeout_s,
            )
        )


@contextmanager
def reserve_port(kind: str, engine: str, host: str, port: int) -> Iterator[int]:
    """Reserves a port while the body runs, and yields its number. `port`: 0 chooses a free one.

    The port stays bound here without listening. SO_REUSEADDR lets the server bind it too, as long
    as only one of the two sockets listens. Linux does not give a bound port to programs that ask
    for a free one. So the server has the same port after each restart. Raises EngineError if
    another program already listens there. `kind`, `engine`: names for this error.
    """
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reservation.bind((host, port))
        except OSError as exc:
            reason = f"port {port} on {host}: {exc.strerror}"
            raise EngineError(kind, engine, reason) from exc
        reserved_port: int = reservation.getsockname()[1]
        yield reserved_port


@asynccontextmanager
async def http_health(url: str) -> AsyncIterator[HealthProbe]:
    """Yields a health check that requests `url`. Status 200 within PROBE_TIMEOUT_S is healthy."""
    timeout = aiohttp.ClientTimeout(total=PROBE_TIMEOUT_S)
    async with aiohttp.ClientSession(timeout=timeout) as http:

        async def is_healthy() -> bool:
            try:
                async with http.get(url) as response:
                    return response.status == 200
            except (aiohttp.ClientError, TimeoutError):
                return False

        yield is_healthy


def _loop_time_s() -> float:
    return asyncio.get_running_loop().time()
