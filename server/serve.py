"""`earshot serve`: from a configuration to a server that runs until it is told to stop."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from core.http import Route
from server.app import build, running
from server.auth import Gate
from server.compose import Parts, assemble
from server.config import Config
from server.health import Health, health_routes
from server.lifecycle import Lifecycle, State, drain, signals
from server.listeners import bind, is_local_only, urls
from server.logs import set_up
from server.metrics import PrometheusMetrics, metrics_routes
from server.net import is_unspecified, lan_addresses, own_names
from server.state import make_key, open_folder, read_key
from server.tls import Tls, open_tls
from server.version import product_version
from web.docs import docs_routes

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Entrance:
    """The listener with its rules, before anything is behind it."""

    sockets: Sequence[socket.socket]
    tls: Tls | None
    gate: Gate
    urls: Sequence[str]
    is_new_key: bool
    "Made just now: the only time that it is printed."


def run(config: Config, started: float) -> None:
    """Serve until a signal. `started`: `time.monotonic()` when the process began.

    Raises ConfigError, AddressInUse, EngineError.
    """
    with ExitStack() as stack:
        entrance = open_entrance(config)
        for opened in entrance.sockets:
            stack.callback(opened.close)
        set_up(config.log, secrets=[entrance.gate.key or ""])
        _greet(config, entrance)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(config, entrance, started))


def open_entrance(config: Config) -> Entrance:
    """Bind, and find or make the key and the certificate."""
    sockets = bind(config.server.host, config.server.port)
    try:
        is_local = is_local_only(sockets)
        key = config.server.api_key or read_key(config.paths.state_dir)
        folder = Path(config.paths.state_dir).expanduser()
        if config.server.tls == "auto" or not (is_local or key):
            folder = open_folder(config.paths.state_dir)
        is_new_key = not (is_local or key)
        if is_new_key:
            key = make_key(folder)
        tls = open_tls(
            config.server.tls, folder, _names(config), lan_addresses(), datetime.now(UTC)
        )
        gate = Gate(
            is_local=is_local,
            key=key,
            hosts=frozenset(name.lower() for name in _names(config)),
            origins=frozenset(config.server.allowed_origins),
        )
        found = urls(config.server.host, sockets, is_tls=tls is not None)
    except BaseException:
        for opened in sockets:
            opened.close()
        raise
    return Entrance(sockets, tls, gate, found, is_new_key)


def _names(config: Config) -> list[str]:
    """What this server may be called in a Host header or a certificate."""
    bound = [] if is_unspecified(config.server.host) else [config.server.host]
    return list(dict.fromkeys([*own_names(), *bound, *config.server.allowed_hosts]))


def _greet(config: Config, entrance: Entrance) -> None:
    """What a person needs once: the key in a ready address, the certificate's fingerprint."""
    say = partial(print, flush=True)  # a container's log would see it only at the end
    if entrance.is_new_key:
        say("Whoever connects needs the key. It is shown only this once; open")
        for url in entrance.urls[1:] or entrance.urls:
            say(f"  {url}/#key={entrance.gate.key}")
        say(f"It is kept in {Path(config.paths.state_dir).expanduser() / 'api-key'}.")
    if entrance.tls is None and not entrance.gate.is_local:
        say("Over http, browsers give the microphone only on this machine: see --tls auto.")
    if entrance.tls is not None and config.server.tls == "auto":
        say("The certificate is our own, so the browser asks once. Its SHA-256 fingerprint is")
        say(f"  {entrance.tls.fingerprint}")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed: it halves what a WebSocket frame costs."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return None
    return new_event_loop


async def _serve(config: Config, entrance: Entrance, started: float) -> None:
    metrics = PrometheusMetrics()
    lifecycle = Lifecycle()
    with signals(lifecycle):
        async with assemble(config, metrics) as parts:
            lifecycle.watch(parts.is_loaded)
            app = build(
                _routes(config, parts, metrics, lifecycle),
                entrance.gate,
                metrics,
                max_body_bytes=config.server.max_body_bytes,
            )
            context = entrance.tls.context if entrance.tls else None
            async with running(app, entrance.sockets, context):
                took_s = time.monotonic() - started
                logger.info("ready in %.1f s at %s", took_s, " ".join(entrance.urls))
                await lifecycle.stopped()
                await drain(parts.sessions, config.server.drain_timeout_s)
    logger.info("stopped")


def _routes(
    config: Config, parts: Parts, metrics: PrometheusMetrics, lifecycle: Lifecycle
) -> Sequence[Route]:
    def details(state: State) -> Health:
        return Health(
            state,
            version=product_version(),
            sessions=parts.sessions.count,
            max_sessions=config.server.max_sessions,
            loaded=parts.loaded(),
        )

    routes = (*parts.routes, *health_routes(lifecycle, details), *metrics_routes(metrics))
    return (*routes, *docs_routes(routes, version=product_version()))
