"""`earshot serve`: opens the listeners and runs the server until a signal stops it."""

import asyncio
import logging
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    nullcontext,
)
from dataclasses import replace
from functools import partial
from pathlib import Path

from core.conversation.ids import draw_machine_number, mark_ids
from core.errors import ConfigError
from core.http.routes import Route
from core.net.acceptor import AddressLimit, exempt_addresses
from core.net.ip_addresses import IpNetwork
from server.compose.assemble import ServerAssembly, SharedState, assemble
from server.compose.doors import KserveDoors
from server.compose.plugins import plugin_routes
from server.config import Config
from server.gateways.forward import only_gateways
from server.gateways.member import Member
from server.http.app import build, run_application
from server.http.auth import AccessGate
from server.http.health import Health, health_routes
from server.machines.link import (
    MachineLink,
    MachineServices,
    NoMachines,
    ServerState,
)
from server.net.addresses import lan_addresses, url_host
from server.net.allowlist import networks_of
from server.net.listeners import bind, is_local_only, raise_file_limit
from server.net.mdns import mdns_service
from server.ports import BoundListener, BoundListeners, bind_listeners
from server.runtime.lifecycle import Lifecycle, LifecycleState, drain, signals
from server.runtime.logs import HIGHLIGHTED, set_up
from server.runtime.metrics import PrometheusMetrics, metrics_routes
from server.runtime.state_dir import KEY_FILE
from server.settings.file import SettingsFile
from server.settings.language_models import LanguageModelFinder
from server.settings.restart import RestartDoor, restart_routes
from server.settings.routes import SettingsDoor, settings_routes
from server.settings.service import SettingsService
from server.version import product_version
from serving.model_host.client import HostedWorkers
from web.docs import docs_routes
from web.page import willow_page_routes, willow_pages

logger = logging.getLogger(__name__)

FEW_FILES = 1024
"""Limit of open files below which a warning is logged. No system's default is lower, so it was set
on purpose or by mistake."""


def run(
    config: Config, settings: SettingsFile, started_s: float, member: Member | None = None
) -> int | None:
    """Serves until a signal arrives, or somebody asks for a restart. Returns the port on which the
    server is to start again; None: it is to end.

    `settings`: file that `config` was read from. `started_s`: `time.monotonic()` at the start of
    the process, for the log. `member`: this process is one gateway of several. Raises ConfigError,
    AddressInUse or EngineError.
    """
    max_open_files = raise_file_limit()
    with ExitStack() as stack:
        listeners = bind_listeners(config, stack, bind if member is None else member.bind)
        port: int = listeners.main.sockets[0].getsockname()[1]
        secrets = [listeners.gate.key or "", *config.esphome.keys]
        set_up(config.log, secrets=secrets, gateway=member.number if member is not None else 0)
        if max_open_files < FEW_FILES:
            logger.warning(
                "! the limit is %d open files, and each connection needs one", max_open_files
            )
        if member is None:
            announce_access(config, listeners)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            is_restart = runner.run(_serve(config, settings, listeners, started_s, member))
    return port if is_restart else None


def announce_access(config: Config, listeners: BoundListeners) -> None:
    """Logs the notes, prints where the key is, the URL with a new key once, and the certificate's
    fingerprint."""
    for note in listeners.notes:
        logger.warning("! %s", note)
    # Without flush, a container's log would show the lines only when the server ends.
    print_now = partial(print, flush=True)
    if listeners.is_new_key:
        print_now("Whoever connects needs the key. It is shown only this once; open")
        for url in listeners.main.urls[1:] or listeners.main.urls:
            print_now(f"  {url}/#key={listeners.gate.key}")
    if listeners.gate.key:
        file = Path(config.paths.state_dir).expanduser() / KEY_FILE
        location = "the one of server.api_key" if config.server.api_key else f"in {file}"
        print_now(f"The key is {location}.")
    if listeners.main.tls is None and not is_local_only(listeners.main.sockets):
        print_now("Over http, browsers give the microphone only on this machine: see --tls auto.")
    if listeners.main.tls is not None and config.server.tls == "auto":
        print_now(
            "The certificate is our own, so the browser asks once. Its SHA-256 fingerprint is"
        )
        print_now(f"  {listeners.main.tls.fingerprint}")


def _ingress_network(config: Config) -> tuple[IpNetwork, ...]:
    """Returns the address of Home Assistant's ingress, through which all its users come."""
    home_assistant = config.home_assistant
    if not home_assistant.ingress_port:
        return ()
    return networks_of((home_assistant.ingress_proxy,), "home_assistant.ingress_proxy")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Returns uvloop's loop factory if it is installed: it halves the cost of a WebSocket frame."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


async def _serve(
    config: Config,
    settings: SettingsFile,
    listeners: BoundListeners,
    started_s: float,
    member: Member | None,
) -> bool:
    """Assembles the server, opens its listeners, and drains them after a signal. Returns whether
    the server is to start again."""
    metrics = PrometheusMetrics()
    lifecycle = Lifecycle()
    own_config = config if member is None else member.own_config(config)
    workers = HostedWorkers(member.model_socket, metrics) if member is not None else None
    shared = SharedState(member.keeper, member.places) if member is not None else SharedState()
    keeping = member.keeper.running() if member is not None else nullcontext()
    with signals(lifecycle):
        async with (
            keeping,
            assemble(own_config, metrics, workers=workers, shared=shared) as assembly,
        ):
            lifecycle.watch(assembly.is_loaded)
            async with AsyncExitStack() as stack:
                joining = member.joined(assembly, metrics, lifecycle) if member else nullcontext()
                joined = await stack.enter_async_context(joining)
                form_routes = _settings(config, settings, listeners, assembly, lifecycle, member)
                shown_metrics = joined.metrics_routes() if joined else metrics_routes(metrics)
                own_routes = (*form_routes, *shown_metrics)
                routes, willow_routes = _routes(config, assembly, lifecycle, own_routes)
                limit = AddressLimit(
                    config.server.max_connections_per_address,
                    exempt_addresses((*config.server.proxies(), *_ingress_network(config))),
                )
                passing_on = () if joined is None else (joined.forwarder.middleware(),)
                applications = _applications(config, listeners, assembly, routes, willow_routes)
                joining_machines = _machines(config, listeners, assembly, lifecycle, member)
                link = await stack.enter_async_context(joining_machines)
                for listener, listener_routes, listener_gate in applications:
                    is_main = listener is listeners.main
                    app = build(
                        listener_routes,
                        listener_gate,
                        metrics,
                        max_body_bytes=config.server.max_body_bytes,
                        is_tls=listener.tls is not None,
                        before_gate=(*link.before_gate, *passing_on) if is_main else (),
                        after_gate=link.after_gate if is_main else (),
                    )
                    context = listener.tls.context if listener.tls else None
                    await stack.enter_async_context(
                        run_application(app, listener.sockets, context, metrics, limit)
                    )
                others = link.serving_others(routes, applications[0][2], passing_on, metrics)
                await stack.enter_async_context(others)
                await stack.enter_async_context(
                    _other_doors(config, listeners, assembly, limit, metrics, member)
                )
                _log_addresses(listeners)
                startup_s = time.monotonic() - started_s
                if joined is not None:
                    peer_app = build(
                        *applications[0][1:],
                        metrics,
                        max_body_bytes=config.server.max_body_bytes,
                        before_gate=(only_gateways, *passing_on),
                    )
                    await stack.enter_async_context(joined.open(peer_app))
                    logger.info("open after %.1f s", startup_s)
                else:
                    addresses = " ".join(listeners.main.urls)
                    logger.info("ready in %.1f s at %s", startup_s, addresses, extra=HIGHLIGHTED)
                await lifecycle.stopped()
                await drain(assembly.drain_group, config.server.drain_timeout_s)
    logger.info("stopped; starting again" if lifecycle.is_restart else "stopped")
    return lifecycle.is_restart


@asynccontextmanager
async def _other_doors(
    config: Config,
    listeners: BoundListeners,
    assembly: ServerAssembly,
    limit: AddressLimit,
    metrics: PrometheusMetrics,
    member: Member | None,
) -> AsyncIterator[None]:
    """Serves the doors with a listener of their own that speaks no HTTP, while the context is
    open."""
    async with AsyncExitStack() as stack:
        if listeners.wyoming:
            wyoming = _run_wyoming(config, listeners.wyoming, assembly, limit, member)
            await stack.enter_async_context(wyoming)
        if listeners.audiosocket:
            calls = _run_audiosocket(config, listeners.audiosocket, assembly, limit)
            await stack.enter_async_context(calls)
        if listeners.esphome is not None and assembly.doors.esphome is not None:
            satellites = assembly.doors.esphome.run(listeners.esphome.sockets)
            await stack.enter_async_context(_when_alone(member, satellites))
        if grpc_sockets := listeners.kserve_grpc:
            grpc_gate = replace(listeners.kserve_gate, keys=assembly.named_keys)
            grpc = _run_grpc(grpc_sockets, assembly.doors.kserve, grpc_gate, metrics)
            await stack.enter_async_context(_when_alone(member, grpc))
        yield


@asynccontextmanager
async def _machines(
    config: Config,
    listeners: BoundListeners,
    assembly: ServerAssembly,
    lifecycle: Lifecycle,
    member: Member | None,
) -> AsyncIterator[MachineLink | NoMachines]:
    """Yields the link to the servers of other machines while the context is open. Raises
    ConfigError."""
    if listeners.machines is None:
        yield NoMachines()
        return
    devices = assembly.devices
    state = ServerState(
        sessions=lambda: member.sessions if member else assembly.drain_group.count,
        drains=lambda: lifecycle.state == "draining",
        devices=lambda: frozenset(devices.presence.ids()),
        announces=lambda: member is None or member.is_home,
    )
    number = member.machine if member is not None else draw_machine_number()
    mark_ids(member.number if member is not None else 0, number)
    services = MachineServices(devices.machines, devices.wake_claims, state)
    link = MachineLink(config, number, listeners, services)
    async with link.running():
        yield link


def _applications(
    config: Config,
    listeners: BoundListeners,
    assembly: ServerAssembly,
    routes: Sequence[Route],
    willow_routes: Sequence[Route],
) -> Sequence[tuple[BoundListener, Sequence[Route], AccessGate]]:
    """Returns what each listener for HTTP serves, and its access rules. `routes`: of the main
    listener. `willow_routes`: of Willow's own listeners."""
    gate, was_gate, ingrain_gate, kserve_gate = (
        replace(one, keys=assembly.named_keys)
        for one in (
            listeners.gate,
            listeners.was_gate,
            listeners.ingrain_gate,
            listeners.kserve_gate,
        )
    )
    applications = [(listeners.main, routes, gate)]
    applications += [(listener, willow_routes, gate) for listener in listeners.willow]
    if listeners.was is not None:
        applications.append((listeners.was, _with_docs(assembly.doors.was_routes), was_gate))
    applications += [
        (listener, _with_docs(assembly.doors.ingrain_routes(kind)), ingrain_gate)
        for kind, listener in listeners.ingrain.items()
    ]
    if listeners.kserve is not None:
        kserve_routes = _with_docs(assembly.doors.kserve.routes(has_own_port=True))
        applications.append((listeners.kserve, kserve_routes, kserve_gate))
    if listeners.kserve_metrics is not None:
        kserve_metrics = assembly.doors.kserve.metrics_routes()
        applications.append((listeners.kserve_metrics, kserve_metrics, kserve_gate))
    if listeners.ingress is not None:
        ingress_gate = replace(gate, only_peer=config.home_assistant.ingress_proxy)
        applications.append((listeners.ingress, routes, ingress_gate))
    if listeners.esphome is not None and assembly.doors.esphome is not None:
        applications.append((listeners.esphome, assembly.doors.esphome.routes, gate))
    return applications


def _log_addresses(listeners: BoundListeners) -> None:
    """Logs where the listeners besides the main one are."""
    for listener in listeners.willow:
        logger.info("Willow at %s", " ".join(listener.urls))
    if listeners.was is not None:
        logger.info("Willow's devices at %s", " ".join(listeners.was.urls))
    for kind, listener in listeners.ingrain.items():
        logger.info("Ingrain (%s) at %s", kind, " ".join(listener.urls))
    if listeners.kserve is not None:
        logger.info("KServe at %s", " ".join(listeners.kserve.urls))
    if listeners.kserve_metrics is not None:
        logger.info("KServe's metrics at %s", listeners.kserve_metrics.urls[0])
    if listeners.ingress is not None:
        logger.info("Home Assistant's ingress at %s", listeners.ingress.urls[0])
    if listeners.esphome is not None:
        logger.info("ESPHome's satellites fetch sounds at %s", listeners.esphome.urls[0])


@asynccontextmanager
async def _run_wyoming(
    config: Config,
    sockets: Sequence[socket.socket],
    assembly: ServerAssembly,
    limit: AddressLimit,
    member: Member | None,
) -> AsyncIterator[None]:
    """Runs the Wyoming server and its mDNS announcement until the context is left."""
    wyoming, port = config.wyoming, sockets[0].getsockname()[1]
    async with asyncio.TaskGroup() as tasks:
        server_task = tasks.create_task(assembly.doors.wyoming.run(sockets, limit), name="wyoming")
        logger.info("Wyoming at %s:%d", url_host(wyoming.host), port)
        is_announced = wyoming.announce and wyoming.networks
        addresses = [
            address for address in lan_addresses() if address.version == 4 or wyoming.host == "::"
        ]
        announcement = mdns_service(port, addresses) if is_announced else nullcontext()
        async with _when_alone(member, announcement):
            yield
        server_task.cancel()


@asynccontextmanager
async def _when_alone(
    member: Member | None, service: AbstractAsyncContextManager[None]
) -> AsyncIterator[None]:
    """Opens the context of a service that only one process may run: at once, or as soon as the
    home gateway that this one replaces has ended."""
    if member is None:
        async with service:
            yield
        return

    async def run() -> None:
        await member.alone_at_home()
        async with service:
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(run())
        yield
        running.cancel()


@asynccontextmanager
async def _run_audiosocket(
    config: Config, sockets: Sequence[socket.socket], assembly: ServerAssembly, limit: AddressLimit
) -> AsyncIterator[None]:
    """Serves Asterisk's calls until the context is left."""
    port = sockets[0].getsockname()[1]
    async with asyncio.TaskGroup() as tasks:
        door_task = tasks.create_task(
            assembly.doors.audiosocket.run(sockets, limit), name="audiosocket"
        )
        logger.info("AudioSocket at %s:%d", url_host(config.telephone.host), port)
        yield
        door_task.cancel()


@asynccontextmanager
async def _run_grpc(
    sockets: Sequence[socket.socket],
    kserve: KserveDoors,
    gate: AccessGate,
    metrics: PrometheusMetrics,
) -> AsyncIterator[None]:
    """Runs KServe's gRPC service on the port of the sockets until the context is left. Raises
    ConfigError."""
    # Our worker processes never call gRPC, so it need not stop its threads when they are started.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
    try:
        from server.grpc.edge import GrpcEdge
        from server.grpc.kserve import KserveGrpcDoor, run_grpc
    except ImportError as error:
        raise ConfigError(
            "config.kserve.grpc_port needs gRPC's library:"
            f" pip install 'earshot-server[kserve]' ({error})"
        ) from error
    names = [listener.getsockname() for listener in sockets]
    for listener in sockets:
        listener.close()  # gRPC's library opens its own
    addresses = [f"{url_host(name[0])}:{name[1]}" for name in names]
    door = KserveGrpcDoor(kserve.service, GrpcEdge(gate, kserve.settings, metrics))
    async with run_grpc(door, addresses, kserve.settings.max_message_bytes):
        logger.info("KServe (gRPC) at %s", " ".join(addresses))
        yield


def _routes(
    config: Config, assembly: ServerAssembly, lifecycle: Lifecycle, main_routes: Sequence[Route]
) -> tuple[Sequence[Route], Sequence[Route]]:
    """Returns the routes of the main listener, and those of Willow's own listeners. `main_routes`:
    routes of metrics and settings, which only the main listener has."""

    def health_report(state: LifecycleState) -> Health:
        return Health(
            state,
            version=product_version(),
            sessions=assembly.sessions.count_of_all,
            max_sessions=config.server.max_sessions,
            loaded=assembly.engine_names(),
        )

    health = health_routes(lifecycle, health_report)
    pages = willow_pages()
    own_routes = (
        *assembly.doors.routes,
        *assembly.doors.willow_routes,
        *pages,
        *health,
        *main_routes,
    )
    willow_only = (*assembly.doors.willow_routes, *willow_page_routes(), *health)
    added_routes = plugin_routes(_with_docs(own_routes), assembly.doors.plugins)
    return _with_docs((*own_routes, *added_routes)), _with_docs(willow_only)


def _settings(
    config: Config,
    file: SettingsFile,
    listeners: BoundListeners,
    assembly: ServerAssembly,
    lifecycle: Lifecycle,
    member: Member | None,
) -> Sequence[Route]:
    """Returns the routes with which the page changes the settings and restarts the server."""
    optional = (
        listeners.was,
        listeners.ingress,
        listeners.kserve,
        *listeners.willow,
        *listeners.ingrain.values(),
    )
    others = [listener for listener in optional if listener is not None]
    ports = {
        bound_socket.getsockname()[1]
        for listener in (listeners.main, *others)
        for bound_socket in listener.sockets
    }
    ports |= {bound_socket.getsockname()[1] for bound_socket in listeners.kserve_grpc}
    service = SettingsService(file, config, assembly.settings_host)
    if member is not None:
        service.on_saved = member.tell_settings
        member.on_settings = service.take_over_file
    door = RestartDoor(
        file,
        lifecycle.restart if member is None else member.ask_restart,
        own_ports=ports,
        drain_timeout_s=config.server.drain_timeout_s,
    )
    finder = LanguageModelFinder(ports)
    return (*settings_routes(SettingsDoor(service, finder)), *restart_routes(door))


def _with_docs(routes: Sequence[Route]) -> Sequence[Route]:
    """Returns the routes, and those of the pages that document them."""
    return (*routes, *docs_routes(routes, version=product_version()))
