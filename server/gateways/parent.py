"""The parent of several gateways: it opens the ports, starts the gateways and keeps them alive,
replaces them one after the other, and ends them."""

import asyncio
import logging
import secrets
import shutil
import signal
import socket
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from core.conversation.ids import draw_machine_number
from core.errors import ConfigError
from core.tasks import Backoff
from server.config import Config
from server.gateways.channel import (
    ControlSocket,
    Drain,
    GatewayPlace,
    GatewayRow,
    Report,
    RestartRequest,
    SettingsChanged,
    Table,
    ToGateway,
    ToParent,
)
from server.gateways.conversation_store import ConversationServer
from server.gateways.dispatch import HOME_SLOT, OWN_PORT, BoundPorts, Dispatcher, GatewayProcess
from server.gateways.forward import socket_path
from server.gateways.model_host import supervise_model_host
from server.gateways.places import PlaceFile
from server.net.listeners import raise_file_limit
from server.ports import bind_listeners
from server.runtime.lifecycle import CLOSE_GRACE_S, Lifecycle, signals
from server.runtime.logs import HIGHLIGHTED, set_up
from server.runtime.state_dir import open_folder
from server.serve import announce_access

logger = logging.getLogger(__name__)

FOLDER = "gateways-{port}"
"""Name of the folder of sockets in the state folder. The main port is in it, so that two servers
with one state folder do not meet."""

MAX_PATH_BYTES = 107
"Longest path of a unix socket on Linux, in bytes."

LONGEST_NUMBER = 999_999
"Number of a gateway with which the path of its socket is checked at the start."

BACKOFF_S = (0.05, 0.2, 1.0, 5.0)
"Seconds before the next start of a gateway after the first, second, ... failure in a row."

STABLE_AFTER_S = 30.0
"A gateway that lived this many seconds resets the count of failures."

RETIRE_S = 1.0
"""Least time in seconds between the news that a gateway retires and its end, for requests that are
on their way to it."""

EXIT_GRACE_S = 10.0
"Time in seconds that a gateway has for its end after draining. Then it is killed."

FORGET_INTERVAL_S = 1.0
"Interval after which connections that were handed over no longer count as load, in seconds."


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a server with several gateways has ended."""

    status: int = 0
    "Exit status for this process."
    restart_port: int | None = None
    "Port on which the server is to start again; None: it is to end."


def supervise(config: Config, started_s: float, count: int) -> Outcome:
    """Runs `count` gateways until a signal arrives or somebody asks for a restart. `started_s`:
    `time.monotonic()` at the start of the process. Raises ConfigError or AddressInUse."""
    if sys.platform != "linux":
        raise ConfigError("config.server.gateways: several gateways need Linux; choose 1")
    raise_file_limit()
    bound = BoundPorts()
    with ExitStack() as stack:
        listeners = bind_listeners(config, stack, bound.bind)
        for port, listening in zip(bound.ports, bound.sockets, strict=True):
            if port.setting == OWN_PORT:
                listening.close()
        set_up(config.log, secrets=[listeners.gate.key or ""])
        announce_access(config, listeners)
        main_port = int(listeners.main.sockets[0].getsockname()[1])
        folder = _empty_folder(config.paths.state_dir, FOLDER.format(port=main_port))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        addresses = " ".join(listeners.main.urls)
        lifecycle = Lifecycle()
        supervisor = Supervisor(config, bound, count, folder, lifecycle, addresses, started_s)
        asyncio.run(_run(supervisor, lifecycle))
    logger.info("stopped; starting again" if lifecycle.is_restart else "stopped")
    return Outcome(supervisor.failed_status, main_port if lifecycle.is_restart else None)


def _empty_folder(state_dir: str, name: str) -> Path:
    """Returns the folder of the sockets, without what an earlier server left there. Raises
    ConfigError."""
    folder = (open_folder(state_dir) / name).absolute()
    longest = socket_path(folder, LONGEST_NUMBER)
    if len(longest.encode()) > MAX_PATH_BYTES:
        raise ConfigError(
            f"config.paths.state_dir: {longest} has {len(longest.encode())} bytes; with several"
            f" gateways it may have {MAX_PATH_BYTES}"
        )
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise ConfigError(f"config.paths.state_dir: {folder}: {error.strerror}") from error
    return folder


async def _run(supervisor: "Supervisor", lifecycle: Lifecycle) -> None:
    with signals(lifecycle):
        await supervisor.run()


class Supervisor:
    """Keeps the gateways of a server alive."""

    def __init__(
        self,
        config: Config,
        bound: BoundPorts,
        count: int,
        folder: Path,
        lifecycle: Lifecycle,
        addresses: str,
        started_s: float,
    ) -> None:
        """`count`: number of gateways. `folder`: for their sockets. `addresses`: of the server, for
        the log."""
        self._server, self._bound, self._count = config.server, bound, count
        self._folder, self._lifecycle = folder, lifecycle
        self._addresses, self._started_s = addresses, started_s
        self._dispatcher = Dispatcher(bound)
        self._gateways: list[GatewayProcess] = []
        self._current: dict[int, GatewayProcess] = {}
        "Slot -> the gateway that takes its new calls."
        self._backoffs = {slot: Backoff(BACKOFF_S, STABLE_AFTER_S) for slot in range(count)}
        self._conversations = ConversationServer(monotonic, self._is_ending)
        self._places = PlaceFile(count)
        self._token = secrets.token_hex(32)
        self._machine = draw_machine_number() if config.machines.is_on else 0
        self._next_number = 1
        self._is_started = self._is_rolling = False
        self.failed_status = 0
        "Exit status of a gateway that ended before all were ready for the first time."

    async def run(self) -> None:
        """Runs until the lifecycle is stopped, or a gateway cannot start."""
        loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as tasks:
            loop.add_signal_handler(signal.SIGHUP, lambda: tasks.create_task(self._roll(tasks)))
            forgetting = tasks.create_task(self._forget_handed())
            hosting = tasks.create_task(supervise_model_host(self._folder), name="model-host")
            expiring = tasks.create_task(self._conversations.expire(), name="conversations")
            try:
                for slot in range(self._count):
                    self._current[slot] = await self._start(slot, tasks)
                await self._lifecycle.stopped()
            except asyncio.CancelledError:  # a second signal
                for gateway in self._gateways:
                    gateway.process.kill()
                raise
            finally:
                loop.remove_signal_handler(signal.SIGHUP)
                signal.signal(signal.SIGHUP, signal.SIG_IGN)  # its default would end us
                forgetting.cancel()
                expiring.cancel()
                self._dispatcher.stop()
                await self._stop_all()
                hosting.cancel()  # the last: gateways that drain need their models

    async def _start(self, slot: int, tasks: asyncio.TaskGroup) -> GatewayProcess:
        """Starts a gateway, which reads the present configuration."""
        number = self._next_number
        self._next_number += 1
        kind = socket.SOCK_SEQPACKET
        own_end, other_end = socket.socketpair(socket.AF_UNIX, kind)
        kept_end, gateway_kept_end = socket.socketpair()
        pairs = {
            index: socket.socketpair(socket.AF_UNIX, kind) for index in self._bound.indices(slot)
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *sys.orig_argv[1:],
            "--as-gateway",
            str(other_end.fileno()),
            pass_fds=[other_end.fileno()],
            start_new_session=True,  # Ctrl-C reaches only the parent, which lets them drain
        )
        other_end.close()
        for end in (own_end, kept_end, *(pair[0] for pair in pairs.values())):
            end.setblocking(False)
        ends = {index: pair[0] for index, pair in pairs.items()}
        gateway = GatewayProcess(number, slot, process, ControlSocket(own_end), ends, monotonic())
        ports = tuple(self._bound.ports[index] for index in pairs)
        row = self._places.give_row(number)
        place = GatewayPlace(
            number, slot, self._count, str(self._folder), self._token, ports, row, self._machine
        )
        files = [pair[1].fileno() for pair in pairs.values()]
        _send(gateway, place, [*files, gateway_kept_end.fileno(), self._places.file])
        for other in (gateway_kept_end, *(pair[1] for pair in pairs.values())):
            other.close()
        gateway.is_home = slot == HOME_SLOT and not any(one.is_home for one in self._gateways)
        self._gateways.append(gateway)
        loop = asyncio.get_running_loop()
        loop.add_reader(gateway.control.fileno(), self._read, gateway)
        tasks.create_task(self._watch(gateway, tasks), name=f"gateway-{number}")
        tasks.create_task(self._conversations.serve(number, kept_end), name=f"kept-{number}")
        self._publish()
        return gateway

    async def _watch(self, gateway: GatewayProcess, tasks: asyncio.TaskGroup) -> None:
        """Waits for the end of a gateway, and starts another one if nobody asked it to end."""
        status = await gateway.process.wait()
        self._remove(gateway)
        if self._is_stopping or self._current.get(gateway.slot) is not gateway:
            logger.info("= gateway %d has ended", gateway.number)
            return
        others = [one for one in self._gateways if one.slot == gateway.slot]
        if others:  # the one that was to replace it takes over at once
            self._current[gateway.slot] = others[-1]
            others[-1].is_home = gateway.is_home
            self._publish()
            return
        if not self._is_started:
            self.failed_status = status if status > 0 else 1
            self._lifecycle.stop()  # it has said why
            return
        wait_s = self._backoffs[gateway.slot].fail(monotonic() - gateway.started_s)
        logger.error(
            "! gateway %d ended with status %d; another one starts in %.2f s",
            gateway.number,
            status,
            wait_s,
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._lifecycle.stopped()
        if not self._is_stopping:
            self._current[gateway.slot] = await self._start(gateway.slot, tasks)

    def _is_ending(self, number: int) -> bool:
        """Returns whether clients of a gateway will come back to another one."""
        states = [one.state for one in self._gateways if one.number == number]
        return states in (["retiring"], ["draining"])

    @property
    def _is_stopping(self) -> bool:
        return self._lifecycle.state == "draining"

    def _remove(self, gateway: GatewayProcess) -> None:
        asyncio.get_running_loop().remove_reader(gateway.control.fileno())
        self._gateways.remove(gateway)
        self._places.free_row(gateway.number)
        gateway.control.close()
        for end in gateway.ends.values():
            end.close()
        Path(socket_path(self._folder, gateway.number)).unlink(missing_ok=True)
        gateway.has_ended = True
        gateway.changed.set()
        self._publish()

    def _read(self, gateway: GatewayProcess) -> None:
        """Reads what a gateway reports."""
        while True:
            try:
                message, _ = gateway.control.receive(ToParent)
            except BlockingIOError:
                return
            except OSError:
                message = None
            match message:
                case Report():
                    gateway.report, gateway.handed = message, 0
                    if gateway.state in ("starting", "ready"):
                        gateway.state = "ready" if message.is_loaded else "starting"
                    gateway.changed.set()
                    self._publish()
                case RestartRequest():
                    self._lifecycle.restart()
                case SettingsChanged():
                    for other in self._gateways:
                        if other is not gateway:
                            _send(other, SettingsChanged())
                case None:  # `_watch` waits for its end
                    asyncio.get_running_loop().remove_reader(gateway.control.fileno())
                    return

    def _publish(self) -> None:
        """Tells all gateways about each other, and the dispatcher about all."""
        current = [self._current.get(slot) for slot in range(self._count)]
        if not self._is_started and all(one and one.state == "ready" for one in current):
            self._is_started = True
            logger.info(
                "ready in %.1f s at %s with %d gateways",
                monotonic() - self._started_s,
                self._addresses,
                self._count,
                extra=HIGHLIGHTED,
            )
        rows = tuple(
            GatewayRow(one.number, one.slot, one.state, one.is_home, one.load)
            for one in self._gateways
            if one.report is not None
        )
        for gateway in self._gateways:
            _send(gateway, Table(rows, self._is_started))
        if not self._is_stopping:
            self._dispatcher.update(self._gateways)

    async def _forget_handed(self) -> None:
        while True:
            await asyncio.sleep(FORGET_INTERVAL_S)
            self._dispatcher.forget()
            self._publish()  # a gateway that was busy may have missed the latest table

    async def _roll(self, tasks: asyncio.TaskGroup) -> None:
        """Replaces the gateways one after the other: the new one takes new calls, the old one
        keeps its own until they end."""
        if self._is_rolling or not self._is_started:
            logger.warning("! SIGHUP is ignored: the gateways are being started already")
            return
        self._is_rolling = True
        try:
            for slot in range(self._count):
                if not await self._replace(slot, tasks):
                    return
            logger.info("= all gateways were replaced")
        finally:
            self._is_rolling = False

    async def _replace(self, slot: int, tasks: asyncio.TaskGroup) -> bool:
        """Replaces the gateway of a slot. Returns False if the new one does not start, or the
        server is to stop."""
        old, new = self._current[slot], await self._start(slot, tasks)
        logger.info("= gateway %d replaces gateway %d", new.number, old.number)
        while new.state != "ready" and not (new.has_ended or self._is_stopping):
            await _next_change(new)
        if self._is_stopping:
            return False
        if new.has_ended:
            logger.error("! gateway %d did not start: the others stay", new.number)
            return False
        self._current[slot] = new
        if not old.has_ended:
            await self._retire(old, new)
        elif slot == HOME_SLOT:
            self._move_home(new)
        return not self._is_stopping

    async def _retire(self, old: GatewayProcess, new: GatewayProcess) -> None:
        """Ends a gateway once its calls have ended, or `server.rolling_wait_s` have passed."""
        old.state = "retiring"
        self._publish()
        await asyncio.sleep(RETIRE_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._server.rolling_wait_s):
                while old.load and not (old.has_ended or self._is_stopping):
                    await _next_change(old)
        if self._is_stopping:
            return
        old.state = "draining"
        if old.is_home:
            old.is_home = False
            self._move_home(new)
        self._publish()
        _send(old, Drain())
        await self._ended_or_killed(old)

    def _move_home(self, new: GatewayProcess) -> None:
        """Makes a gateway the home gateway."""
        new.is_home = True
        self._publish()

    async def _stop_all(self) -> None:
        for gateway in self._gateways:
            gateway.state = "draining"
            _send(gateway, Drain())
            gateway.changed.set()
        await asyncio.gather(*map(self._ended_or_killed, tuple(self._gateways)))

    async def _ended_or_killed(self, gateway: GatewayProcess) -> None:
        """Waits until a gateway that was told to drain has ended. Kills it if it does not."""
        try:
            limit_s = self._server.drain_timeout_s + CLOSE_GRACE_S + EXIT_GRACE_S
            async with asyncio.timeout(limit_s):
                await gateway.process.wait()
        except TimeoutError:
            logger.error("! gateway %d does not end: it is killed", gateway.number)
        finally:
            if gateway.process.returncode is None:
                gateway.process.kill()


async def _next_change(gateway: GatewayProcess) -> None:
    gateway.changed.clear()
    await gateway.changed.wait()


def _send(gateway: GatewayProcess, message: ToGateway, files: list[int] | None = None) -> None:
    with suppress(OSError):  # `Supervisor._watch` notices that it has ended
        gateway.control.send(message, files or [])
