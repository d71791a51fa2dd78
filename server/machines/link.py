"""This server among those of other machines: announces itself, follows the others, answers them."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic, thread_time

import msgspec
from aiohttp import web as aioweb
from aiohttp.typedefs import Middleware

from core.errors import ConfigError, RequestError, StorageError
from core.http.routes import Route
from core.net.acceptor import open_acceptors
from core.ports import Metrics
from devices.fleet.wake_claims import WakeClaim, WakeClaims
from devices.registry.machines import MachineRegistry, MachineRow
from server.config import Config
from server.http.app import CLOSE_TIMEOUT_S, build
from server.http.auth import AccessGate
from server.http.connection import HttpRunner
from server.machines.claims import RoomClaims
from server.machines.forward import CLAIMS_PATH, SENDER, MachineForwarder, OwnMachine, only_machines
from server.machines.seal import MIN_KEY_CHARS, SharedKey
from server.machines.table import HEARTBEAT_S, MachineTable
from server.ports import BoundListeners

logger = logging.getLogger(__name__)

KEY_FILE = "machines-key"
"Name of the file with the shared key in the state folder."

MAX_CLAIM_BYTES = 1024
"Largest claim between servers. One has some 200 bytes."


@dataclass(frozen=True, slots=True)
class ServerState:
    """Facts that a server tells the others about itself."""

    sessions: Callable[[], int]
    "Returns the number of sessions of this machine."
    drains: Callable[[], bool]
    "Returns True if it is about to stop."
    devices: Callable[[], frozenset[str]]
    "Returns the ids of the devices that are connected to this process."
    announces: Callable[[], bool]
    "Returns True in the one process that speaks for this machine."


@dataclass(frozen=True, slots=True)
class MachineServices:
    """Parts of this server that its link to other machines uses."""

    registry: MachineRegistry
    claims: WakeClaims
    state: ServerState


class NoMachines:
    """Stands for the link of a server that works alone."""

    before_gate: Sequence[Middleware] = ()
    after_gate: Sequence[Middleware] = ()

    def serving_others(self, *_: object) -> AbstractAsyncContextManager[None]:
        """Returns a context in which nothing happens."""
        return nullcontext()


def read_shared_key(config: Config) -> bytes:
    """Returns the key that all machines share. Raises ConfigError."""
    usual = Path(config.paths.state_dir) / KEY_FILE
    file = Path(config.machines.key_file or usual).expanduser()
    try:
        key = file.read_bytes().strip()
    except OSError as error:
        raise ConfigError(
            f"config.machines.key_file: cannot read {file}: {error.strerror or error}; make it on"
            f" one machine (openssl rand -hex 32 > {file}) and copy it to the others"
        ) from error
    if len(key) < MIN_KEY_CHARS:
        raise ConfigError(
            f"config.machines.key_file: the key in {file} has {len(key)} characters; at least"
            f" {MIN_KEY_CHARS} are needed"
        )
    if file.stat().st_mode & 0o077:
        raise ConfigError(f"config.machines.key_file: others may use {file}; run chmod 600 {file}")
    return key


def check_machines(config: Config, registry: MachineRegistry) -> None:
    """Checks the settings of other sections that several machines need. Raises ConfigError."""
    if not registry.is_shareable:
        raise ConfigError(
            "config.devices.database: several machines (machines.host) share one PostgreSQL; write"
            " its URL, like postgresql://user@host/earshot"
        )
    if not config.server.api_key:
        raise ConfigError(
            "config.server.api_key: several machines (machines.host) need the same key; set it on"
            " all of them"
        )


class MachineLink:
    """Announces this server, and keeps its table of the others up to date."""

    def __init__(
        self,
        config: Config,
        number: int,
        listeners: BoundListeners,
        services: "MachineServices",
    ) -> None:
        """`number`: of this machine. Raises ConfigError."""
        check_machines(config, services.registry)
        listener = listeners.machines
        assert listener is not None
        assert listener.tls is not None
        self._registry, self._claims = services.registry, services.claims
        self._state = state = services.state
        self._config = config
        self._max_sessions = config.server.max_sessions
        self._listener, self._tls = listener, listener.tls
        main = listeners.main
        scheme = "https" if main.tls is not None else "http"
        host = config.machines.host
        host = f"[{host}]" if ":" in host else host
        main_port = main.sockets[0].getsockname()[1]
        self._url = config.machines.url or f"{scheme}://{host}:{main_port}"
        port = listener.sockets[0].getsockname()[1] if listener.sockets else 0
        self._peer_address = f"{host}:{port}"
        self._fingerprint = listener.tls.fingerprint.replace(":", "").lower()
        self._busy = _LoopShare()
        self.table = MachineTable(number)
        own = OwnMachine(self._fingerprint, self._load, state.drains, state.devices)
        self.forwarder = MachineForwarder(self.table, SharedKey(read_shared_key(config)), own)
        self._rooms = RoomClaims(
            self.table, self._registry, self.forwarder.claim, self._claims.rooms
        )
        self._known: dict[int, str] = {}

    @property
    def before_gate(self) -> Sequence[Middleware]:
        """Middlewares of the main listener before its access rules."""
        return (self.forwarder.passing_on(),)

    @property
    def after_gate(self) -> Sequence[Middleware]:
        """Middlewares of the main listener behind its access rules."""
        return (self.forwarder.spreading(),)

    def _routes(self) -> tuple[Route, ...]:
        """Returns the routes that only the port between servers has."""
        return (
            Route(
                "POST",
                CLAIMS_PATH,
                self._take_claim,
                "Ask the owner of a room whether a device may answer a wake word.",
                "Machines",
                scope="talk",
                is_public=True,  # `only_machines` has checked who asks
                max_body_bytes=MAX_CLAIM_BYTES,
            ),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Announces this server while the context is open."""
        async with self.forwarder, asyncio.TaskGroup() as tasks:
            await self._exchange()
            following = tasks.create_task(self._follow(), name="machines")
            self._claims.ask = self._rooms.ask
            try:
                yield
            finally:
                self._claims.ask = None
                following.cancel()
                if self._state.announces():
                    with suppress(StorageError):
                        await self._registry.withdraw(self.table.own_number)

    @asynccontextmanager
    async def serving_others(
        self,
        routes: Sequence[Route],
        gate: AccessGate,
        passing_on: Sequence[Middleware],
        metrics: Metrics,
    ) -> AsyncIterator[None]:
        """Answers the other servers while the context is open. `routes`, `gate`: of the main
        listener. `passing_on`: passes requests on to other gateways of this machine."""
        # The client is elsewhere, so it needs the key also if the main listener needs none.
        app = build(
            (*routes, *self._routes()),
            replace(gate, is_local=False),
            metrics,
            max_body_bytes=self._config.server.max_body_bytes,
            before_gate=(only_machines, *passing_on),
        )
        runner = _MachineRunner(app, metrics, self.forwarder)
        await runner.setup()
        sockets, context = self._listener.sockets, self._tls.context
        try:
            async with open_acceptors(sockets, runner.connection, tls=context):
                if sockets:
                    logger.info("servers of other machines at %s", self._listener.urls[0])
                yield
        finally:
            await runner.cleanup()

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_S)
            self._busy.measure()
            await self._exchange()

    async def _exchange(self) -> None:
        """Writes the own row and reads the others. While the database is away, which it logs
        itself, the table stays as it was."""
        own = self._own_row() if self._state.announces() else None
        with suppress(StorageError):
            self.table.update(await self._registry.exchange(own))
            self._log_changes()

    def _own_row(self) -> MachineRow:
        return MachineRow(
            self.table.own_number,
            self._url,
            self._peer_address,
            self._fingerprint,
            self._load(),
            self._max_sessions,
            takes_calls=not self._state.drains(),
            rooms=self._claims.rooms(),
            devices=self._state.devices(),
        )

    def _load(self) -> float:
        """Returns the share of the capacity that is used: of the sessions that are allowed, or of
        the processor core of this process, if that is more."""
        return max(self._state.sessions() / self._max_sessions, self._busy.share)

    def _log_changes(self) -> None:
        present = {row.number: row.url for row in self.table.others}
        for number in present.keys() - self._known.keys():
            logger.info("= machine %d works with this one: %s", number, present[number])
        for number in self._known.keys() - present.keys():
            logger.info("= machine %d is gone: %s", number, self._known[number])
        self._known = present

    async def _take_claim(self, request: aioweb.Request) -> aioweb.Response:
        """Answers a claim of another server. Raises RequestError."""
        try:
            claim = msgspec.json.decode(await request.read(), type=WakeClaim)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise RequestError(f"this is no claim: {error}", code="invalid_json") from None
        is_granted = await self._rooms.decide(claim, request[SENDER])
        return aioweb.json_response(is_granted)


class _LoopShare:
    """Measures how much of one processor core the event loop uses."""

    def __init__(self) -> None:
        self.share = 0.0
        "Share in the last interval, 0 to 1."
        self._used_s, self._at_s = thread_time(), monotonic()

    def measure(self) -> None:
        """Ends an interval, in the thread of the event loop."""
        used_s, at_s = thread_time(), monotonic()
        self.share = min(1.0, (used_s - self._used_s) / max(0.001, at_s - self._at_s))
        self._used_s, self._at_s = used_s, at_s


class _MachineRunner(HttpRunner):
    """Runs the application for the servers of other machines."""

    __slots__ = ("_forwarder",)

    def __init__(
        self, app: aioweb.Application, metrics: Metrics, forwarder: MachineForwarder
    ) -> None:
        super().__init__(app, metrics, shutdown_timeout_s=CLOSE_TIMEOUT_S)
        self._forwarder = forwarder

    async def _make_server(self) -> aioweb.Server:
        server = await super()._make_server()
        server.request_factory = self._forwarder.restoring_factory(server.request_factory)
        return server
