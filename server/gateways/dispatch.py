"""Accepts the connections of a server with several gateways, and hands each to one of them.

Of three ways that were measured only this one spreads calls evenly (ADR 104), and no connection is
lost when a gateway ends.
"""

import asyncio
import errno
import logging
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from server.gateways.channel import ControlSocket, GatewayState, Port, Report, hand_over
from server.net.listeners import bind

logger = logging.getLogger(__name__)

MAIN_PORT = "--port"
"Setting of the port that all gateways share. The others belong to the home gateway."

OWN_PORT = "kserve.grpc_port"
"Setting of the port that the home gateway opens itself, because gRPC's library does it there."

HOME_SLOT = 0
"Slot of the home gateway: devices, settings and the page's home are there."

MAX_PER_STEP = 64
"Connections accepted in one step of the event loop."

FILES_PAUSE_S = 1.0
"Wait until the next attempt when no file descriptor is left, in seconds."


@dataclass(slots=True)
class BoundPorts:
    """The listening sockets of the parent, with the settings that name them."""

    ports: list[Port] = field(default_factory=list)
    sockets: list[socket.socket] = field(default_factory=list)

    def bind(self, host: str, port: int, *, setting: str = MAIN_PORT) -> list[socket.socket]:
        """Binds a port as `server.net.listeners.bind` does, and remembers it."""
        bound = bind(host, port, setting=setting)
        for listening in bound:
            name = tuple(listening.getsockname())
            self.ports.append(Port(setting, int(listening.family), name))
            self.sockets.append(listening)
        return bound

    def indices(self, slot: int) -> Sequence[int]:
        """Returns the indices of the ports that the gateway of a slot serves."""
        return [
            index
            for index, port in enumerate(self.ports)
            if slot == HOME_SLOT or port.setting == MAIN_PORT
        ]


@dataclass(slots=True, eq=False)
class GatewayProcess:
    """One gateway that runs, as the parent sees it."""

    number: int
    slot: int
    process: asyncio.subprocess.Process
    control: ControlSocket
    ends: dict[int, socket.socket]
    "Index of a port -> socket on which its connections are handed over."
    started_s: float
    state: GatewayState = "starting"
    is_home: bool = False
    report: Report | None = None
    "Latest report; None: its ports are not open yet."
    handed: int = 0
    "Connections that it got since `Dispatcher.forget`."
    handed_last: int = 0
    "Number of the connection that it got last."
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    "Set at each report and at the end."
    has_ended: bool = False

    @property
    def load(self) -> int:
        """Sessions, and WebSockets that it passes on, as it has reported."""
        return self.report.load if self.report is not None else 0


class Dispatcher:
    """Spreads connections over the gateways."""

    def __init__(self, bound: BoundPorts) -> None:
        self._bound = bound
        self._gateways: Sequence[GatewayProcess] = ()
        self._handed = 0
        self._accepting: set[int] = set()
        "Indices of the ports whose connections are accepted now."

    def update(self, gateways: Sequence[GatewayProcess]) -> None:
        """Takes over which gateways there are. Connections to a port that none of them serves wait
        in the system's queue."""
        self._gateways = tuple(gateways)
        loop = asyncio.get_running_loop()
        for index, listening in enumerate(self._bound.sockets):
            if self._bound.ports[index].setting == OWN_PORT:
                continue
            is_served, accepts = bool(self.candidates(index)), index in self._accepting
            if is_served and not accepts:
                self._accepting.add(index)
                loop.add_reader(listening.fileno(), self._accept, index)
            elif accepts and not is_served:
                self._pause(index)

    def stop(self) -> None:
        """Accepts no more."""
        for index in tuple(self._accepting):
            self._pause(index)

    def forget(self) -> None:
        """Counts the connections that were handed over as load no longer: those that became
        sessions have been reported."""
        for gateway in self._gateways:
            gateway.handed = 0

    def candidates(self, index: int) -> Sequence[GatewayProcess]:
        """Returns the gateways that may get a connection to a port, the best first."""
        is_main = self._bound.ports[index].setting == MAIN_PORT
        open_ones = [
            gateway
            for gateway in self._gateways
            if gateway.report is not None and (is_main or gateway.is_home)
        ]
        ready = [gateway for gateway in open_ones if gateway.state == "ready"]
        # Until one is ready, those that start say so, and show the page. The home gateway serves
        # its own ports until another takes its place.
        starting = [gateway for gateway in open_ones if gateway.state == "starting"]
        chosen = (ready or starting) if is_main else open_ones
        return sorted(chosen, key=lambda one: (one.load + one.handed, one.handed_last))

    def _pause(self, index: int) -> None:
        self._accepting.discard(index)
        asyncio.get_running_loop().remove_reader(self._bound.sockets[index].fileno())

    def _accept(self, index: int) -> None:
        for _ in range(MAX_PER_STEP):
            try:
                connection, _ = self._bound.sockets[index].accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    logger.warning("! no connection can be accepted: %s", error.strerror)
                    self._pause(index)
                    loop = asyncio.get_running_loop()
                    loop.call_later(FILES_PAUSE_S, lambda: self.update(self._gateways))
                    return
                continue  # that client left before it was accepted
            with connection:
                self._hand_over(connection, index)

    def _hand_over(self, connection: socket.socket, index: int) -> None:
        """Hands a connection to the first gateway that takes it. If none does, it is closed."""
        for gateway in self.candidates(index):
            if hand_over(connection, gateway.ends[index]):
                self._handed += 1
                gateway.handed += 1
                gateway.handed_last = self._handed
                return
        logger.warning("! a connection is closed: no gateway takes it")
