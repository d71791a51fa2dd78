"""A gateway's side of the work of several: its table of the others, its reports to the parent, and
its socket for requests that others pass on."""

import asyncio
import logging
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web as aioweb
from msgspec import structs

from core.conversation.ids import mark_ids
from core.errors import EarshotError
from core.http.routes import Route
from core.ports import Metrics
from server.compose.assemble import ServerAssembly
from server.config import Config
from server.config.sections.mqtt import MqttConfig
from server.gateways.channel import (
    ControlSocket,
    Drain,
    GatewayPlace,
    HandedListener,
    Report,
    RestartRequest,
    SettingsChanged,
    Table,
    ToGateway,
    listeners_of,
)
from server.gateways.conversation_client import ParentKeeper
from server.gateways.dispatch import HOME_SLOT
from server.gateways.forward import FROM_GATEWAY, Forwarder, restoring_factory, socket_path
from server.gateways.metrics import counters, keep_ended, merged, read_ended
from server.gateways.model_host import model_socket
from server.gateways.places import SharedPlaces
from server.gateways.routing import Fleet
from server.http.app import CLOSE_TIMEOUT_S
from server.http.connection import HttpRunner
from server.runtime.lifecycle import Lifecycle
from server.runtime.metrics import PrometheusMetrics, metrics_route
from serving.model_host.client import read_metrics

logger = logging.getLogger(__name__)

REPORT_INTERVAL_S = 0.25
"Interval at which a gateway looks whether it has something new to report, in seconds."


METRICS_LIMIT_S = 2.0
"Longest wait for the metrics of the model host, in seconds."

MODEL_HOST = "models"
"Name of the model host among the gateways whose metrics are merged."


class Member:
    """This process as one gateway of several."""

    def __init__(
        self,
        place: GatewayPlace,
        control: ControlSocket,
        listeners: Mapping[str, Sequence[HandedListener]],
        keeper: ParentKeeper,
        places: SharedPlaces,
    ) -> None:
        self._place, self._control = place, control
        self._listeners = listeners
        self.keeper, self.places = keeper, places
        self.fleet = Fleet(place.number)
        self.on_settings: Callable[[], None] = lambda: None
        "Called in a thread when another gateway has saved settings."

    @classmethod
    def join(cls, control_file: int) -> "Member":
        """Takes the place that the parent gives this process. `control_file`: file descriptor of
        the socket to the parent."""
        own_end = socket.socket(fileno=control_file)
        own_end.setblocking(True)
        control = ControlSocket(own_end)
        place, files = control.receive(ToGateway)
        assert isinstance(place, GatewayPlace)
        own_end.setblocking(False)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # it is for the parent
        mark_ids(place.number)
        *port_files, kept_file, places_file = files
        kept_end = socket.socket(fileno=kept_file)
        kept_end.setblocking(False)
        return cls(
            place,
            control,
            listeners_of(place.ports, port_files),
            ParentKeeper(kept_end),
            SharedPlaces(places_file, place.row),
        )

    @property
    def number(self) -> int:
        """Number of this gateway."""
        return self._place.number

    @property
    def machine(self) -> int:
        """Number of this machine among several; 0: it is alone."""
        return self._place.machine

    @property
    def is_home(self) -> bool:
        """True if this is the home gateway."""
        return self.fleet.own is not None and self.fleet.own.is_home

    @property
    def sessions(self) -> int:
        """Sessions of all gateways, and WebSockets that they pass on."""
        return sum(row.load for row in self.fleet.gateways)

    @property
    def folder(self) -> Path:
        """Folder of the sockets between gateways."""
        return Path(self._place.folder)

    @property
    def model_socket(self) -> Path:
        """Socket of the model host."""
        return model_socket(self.folder)

    def bind(self, host: str, port: int, *, setting: str = "--port") -> list[socket.socket]:
        """Returns what the parent hands over in place of listening sockets; nothing for a port that
        another gateway serves. `host` and `port` are the parent's matter."""
        _ = host, port
        return list(self._listeners.get(setting, ()))

    def ask_restart(self) -> None:
        """Asks for a restart of the whole server."""
        with suppress(OSError):
            self._control.send(RestartRequest())

    def tell_settings(self) -> None:
        """Tells the other gateways that settings were saved here."""
        with suppress(OSError):
            self._control.send(SettingsChanged())

    async def alone_at_home(self) -> None:
        """Waits until this is the home gateway, and the one before it has ended."""
        while True:
            own = self.fleet.own
            if own is not None and self.is_home:
                others = [row for row in self.fleet.gateways if row.slot == own.slot]
                if others == [own]:
                    return
            await asyncio.sleep(REPORT_INTERVAL_S)

    def own_config(self, config: Config) -> Config:
        """Returns the configuration of this gateway. Only the home gateway speaks with the MQTT
        broker, because the devices are there."""
        mqtt = config.mqtt if self._place.slot == HOME_SLOT else MqttConfig()
        return structs.replace(config, mqtt=mqtt)

    @asynccontextmanager
    async def joined(
        self, assembly: ServerAssembly, metrics: PrometheusMetrics, lifecycle: Lifecycle
    ) -> AsyncIterator["JoinedMember"]:
        """Follows the parent, and passes requests on, while the context is open."""
        # Until all are ready for the first time, the server is not.
        lifecycle.watch(lambda: assembly.is_loaded() and self.fleet.is_started)
        other_doors = {route.path for door in assembly.doors.plugins for route in door.routes}
        forwarder = Forwarder(
            self.fleet,
            self.folder,
            self._place.token,
            named_key=assembly.named_keys.find,
            other_doors=frozenset(other_doors),
        )
        async with forwarder, self._follow(lifecycle):
            yield JoinedMember(self, assembly, metrics, forwarder)

    def _take_settings(self) -> None:
        try:
            self.on_settings()
        except EarshotError as error:
            logger.warning("! the saved settings do not hold here: %s", error)

    @asynccontextmanager
    async def _follow(self, lifecycle: Lifecycle) -> AsyncIterator[None]:
        """Follows what the parent says while the context is open."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            while True:
                try:
                    message, _ = self._control.receive(ToGateway)
                except BlockingIOError:
                    return
                except OSError:
                    message = None
                match message:
                    case Table():
                        self.fleet.update(message)
                        continue
                    case Drain():
                        lifecycle.stop()
                        continue
                    case SettingsChanged():
                        loop.run_in_executor(None, self._take_settings)
                        continue
                    case None:
                        logger.warning("! the parent process has ended: draining")
                        loop.remove_reader(self._control.fileno())
                        lifecycle.stop()
                return

        loop.add_reader(self._control.fileno(), read)
        try:
            yield
        finally:
            loop.remove_reader(self._control.fileno())

    @asynccontextmanager
    async def reporting(
        self, is_loaded: Callable[[], bool], load: Callable[[], int]
    ) -> AsyncIterator[None]:
        """Reports to the parent while the context is open. `load`: returns the number of sessions
        and of WebSockets that are passed on."""
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(self._report(is_loaded, load), name="gateway-reports")
            yield
            task.cancel()

    async def _report(self, is_loaded: Callable[[], bool], load: Callable[[], int]) -> None:
        """Reports what has changed, until cancelled."""
        last = None
        while True:
            report = Report(is_loaded(), load())
            if report != last:
                with suppress(OSError):  # `_follow` notices that the parent has ended
                    self._control.send(report)
                    last = report
            await asyncio.sleep(REPORT_INTERVAL_S)

    def serve_others(
        self, app: aioweb.Application, metrics: Metrics, path: str
    ) -> AbstractAsyncContextManager[None]:
        """Returns a context in which the requests of other gateways are answered."""
        return serve_others(app, metrics, path, self._place.token)


@dataclass(frozen=True, slots=True)
class JoinedMember:
    """A gateway that has all its parts."""

    member: Member
    _assembly: ServerAssembly
    _metrics: PrometheusMetrics
    forwarder: Forwarder

    def metrics_routes(self) -> tuple[Route, ...]:
        """Returns the route of the metrics of all gateways."""
        member, metrics = self.member, self._metrics

        async def text(request: aioweb.Request) -> bytes:
            own = metrics.exposition()
            if FROM_GATEWAY in request:
                return own
            others = await self.forwarder.metrics_of_others(request)
            texts = {member.number: own.decode(), **others}
            by_name = {str(number): texts[number] for number in sorted(texts)}
            host = await read_metrics(member.model_socket, METRICS_LIMIT_S)
            by_name[MODEL_HOST] = counters(host)  # it sets no gauge: sessions, ... are gateways'
            return merged(by_name, read_ended(member.folder)).encode()

        return (metrics_route(metrics, text),)

    @asynccontextmanager
    async def open(self, app: aioweb.Application) -> AsyncIterator[None]:
        """Takes requests of other gateways, and calls from the parent, until the context is left.
        Then the counters of this gateway are kept for the others. `app`: answers requests of other
        gateways."""
        member, assembly, forwarder = self.member, self._assembly, self.forwarder
        path = socket_path(member.folder, member.number)
        reporting = member.reporting(
            assembly.is_loaded, lambda: assembly.drain_group.count + forwarder.open_websockets
        )
        async with member.serve_others(app, self._metrics, path), reporting:
            yield
        keep_ended(member.folder, self._metrics.exposition().decode())


@asynccontextmanager
async def serve_others(
    app: aioweb.Application, metrics: Metrics, path: str, token: str
) -> AsyncIterator[None]:
    """Answers requests that other gateways pass on until the context is left. `path`: of the
    socket. `token`: with which gateways know each other."""
    listening = socket.socket(socket.AF_UNIX)
    mask = os.umask(0o177)  # the socket is for this user alone from its first moment
    try:
        listening.bind(path)
    finally:
        os.umask(mask)
    listening.setblocking(False)
    runner = _PeerRunner(app, metrics, token)
    await runner.setup()
    server = await asyncio.get_running_loop().create_unix_server(
        lambda: runner.connection(lambda: None), sock=listening
    )
    try:
        yield
    finally:
        server.close()
        await runner.cleanup()


class _PeerRunner(HttpRunner):
    """Runs the application for requests that other gateways pass on."""

    __slots__ = ("_token",)

    def __init__(self, app: aioweb.Application, metrics: Metrics, token: str) -> None:
        super().__init__(app, metrics, shutdown_timeout_s=CLOSE_TIMEOUT_S)
        self._token = token

    async def _make_server(self) -> aioweb.Server:
        server = await super()._make_server()
        server.request_factory = restoring_factory(server.request_factory, self._token)
        return server
