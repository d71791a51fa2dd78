"""Binds the ports of all doors, and says who may use them."""

import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Protocol

from server.config import Config
from server.config.sections.wyoming import USUAL_PORT, WyomingConfig
from server.http.auth import AccessGate
from server.net.addresses import is_unspecified, lan_addresses, own_names
from server.net.listeners import AddressInUse, bind, is_local_only, urls
from server.net.tls import TlsContext, open_tls
from server.runtime.state_dir import make_key, open_folder, read_key, restrict_access
from web.ingrain.door import IngrainPort


@dataclass(frozen=True, slots=True)
class BoundListener:
    """One port, bound on every address that the host means."""

    sockets: Sequence[socket.socket]
    tls: TlsContext | None
    "None: the listener serves plain HTTP."
    urls: Sequence[str]
    "URLs for a browser; the one for this machine itself comes first."


@dataclass(frozen=True, slots=True)
class BoundListeners:
    """Bound listeners with their access rules, before any route is mounted."""

    main: BoundListener
    "Listener of the page and of all doors that speak HTTP."
    willow: Sequence[BoundListener]
    "Listeners that serve only Willow's routes."
    was: BoundListener | None
    "Listener of Willow's application server; None if it is off."
    was_gate: AccessGate
    "Access rules of `was`."
    ingrain: Mapping[IngrainPort, BoundListener]
    "Listeners for clients of Ingrain by what they serve."
    ingrain_gate: AccessGate
    "Access rules of `ingrain`."
    kserve: BoundListener | None
    "Listener for KServe's protocol over HTTP; None if it is off."
    kserve_grpc: Sequence[socket.socket]
    """Sockets that keep the port for gRPC until its server, which opens its own, starts; empty if
    it is off."""
    kserve_metrics: BoundListener | None
    "Listener for metrics with Triton's names; None if it is off."
    kserve_gate: AccessGate
    "Access rules of `kserve`, of gRPC and of `kserve_metrics`."
    ingress: BoundListener | None
    "Listener for Home Assistant's ingress; None if it is off."
    esphome: BoundListener | None
    "Listener from which ESPHome satellites fetch sounds; None if there are none."
    machines: BoundListener | None
    "Listener for the servers of other machines; None: this one works alone."
    wyoming: Sequence[socket.socket]
    "Sockets of the Wyoming server; empty if it is off."
    audiosocket: Sequence[socket.socket]
    "Sockets for Asterisk's AudioSocket; empty if it is off."
    notes: Sequence[str]
    "Warnings for the log. They are collected before logging is set up."
    gate: AccessGate
    "Access rules of the other HTTP listeners."
    is_new_key: bool
    "True: the key was made at this start. Only then it is printed."


class Bind(Protocol):
    """Binds a port, as `server.net.listeners.bind` does."""

    def __call__(self, host: str, port: int, *, setting: str) -> list[socket.socket]: ...


def bind_listeners(config: Config, stack: ExitStack, bind: Bind = bind) -> BoundListeners:
    """Binds all sockets and finds or makes the key and the certificate. `stack`: closes the
    sockets. `bind`: binds a port. Raises ConfigError or AddressInUse."""
    bind_port = partial(_bind_port, config, stack, bind)
    server, willow = config.server, config.willow
    main = bind_port(server.port, "--port")
    willow_http = bind_port(willow.http_port, "willow.http_port")
    willow_https = bind_port(willow.https_port, "willow.https_port")
    was = bind_port(willow.was_port, "willow.was_port", host=willow.was_host)
    ingrain = _bind_ingrain(config, bind_port)
    kserve, kserve_grpc, kserve_metrics = (
        bind_port(port, setting, host=config.kserve.host)
        for port, setting in (
            (config.kserve.http_port, "kserve.http_port"),
            (config.kserve.grpc_port, "kserve.grpc_port"),
            (config.kserve.metrics_port, "kserve.metrics_port"),
        )
    )
    ingress_port = config.home_assistant.ingress_port
    ingress = bind_port(ingress_port, "home_assistant.ingress_port")
    sounds_port = config.esphome.sounds_port if config.esphome.is_on else 0
    esphome = bind_port(sounds_port, "esphome.sounds_port", host=config.esphome.host)
    wyoming, wyoming_notes = _bind_wyoming(config.wyoming, stack, bind)
    telephone = config.telephone
    audiosocket = bind_port(
        telephone.audiosocket_port, "telephone.audiosocket_port", host=telephone.host
    )
    machines = _bind_machines(config, stack, bind)
    # Willow's HTTPS listener needs a certificate even where the main listener has no TLS.
    tls_setting = "auto" if willow_https and server.tls == "off" else server.tls
    ingrain_sockets = [sock for listener in ingrain.values() for sock in listener.sockets]
    is_local, is_was_local, is_ingrain_local, is_kserve_local = (
        is_local_only(sockets) and not server.needs_key_here
        for sockets in (main, was, ingrain_sockets, [*kserve, *kserve_grpc, *kserve_metrics])
    )
    needs_key = not (is_local and is_was_local and is_ingrain_local and is_kserve_local)
    notes = [*wyoming_notes, *restrict_access(config.paths.state_dir)]
    key = server.api_key or read_key(config.paths.state_dir)
    folder = Path(config.paths.state_dir).expanduser()
    is_new_key = needs_key and not key
    if tls_setting == "auto" or is_new_key:
        folder = open_folder(config.paths.state_dir)
    if is_new_key:
        key = make_key(folder)
    names = _server_names(config)
    tls = open_tls(tls_setting, folder, names, lan_addresses(), datetime.now(UTC))
    gate = AccessGate(
        is_local=is_local,
        key=key,
        hosts=frozenset(name.lower() for name in names),
        origins=frozenset((*server.allowed_origins, *willow.page_origins)),
    )
    willow_sockets = ((willow_http, None), (willow_https, tls))
    return BoundListeners(
        _bound_listener(config, main, None if server.tls == "off" else tls),
        [
            _bound_listener(config, sockets, listener_tls)
            for sockets, listener_tls in willow_sockets
            if sockets
        ],
        _plain_listener(willow.was_host, was),
        replace(gate, is_local=is_was_local),
        ingrain,
        replace(gate, is_local=is_ingrain_local),
        _plain_listener(config.kserve.host, kserve),
        kserve_grpc,
        _plain_listener(config.kserve.host, kserve_metrics),
        replace(gate, is_local=is_kserve_local),
        _bound_listener(config, ingress, None) if ingress else None,
        _plain_listener(config.esphome.host, esphome),
        _machines_listener(config, machines, names),
        wyoming,
        audiosocket,
        notes,
        gate,
        is_new_key,
    )


def _bind_port(
    config: Config, stack: ExitStack, bind: Bind, port: int, setting: str, *, host: str = ""
) -> list[socket.socket]:
    """Binds a port; `stack` closes it. Returns no socket for port 0, which turns a listener off.
    For the main listener port 0 means a free port. `host`: replaces the main listener's host."""
    if port == 0 and setting != "--port":
        return []
    sockets = bind(host or config.server.host, port, setting=setting)
    for listener in sockets:
        stack.callback(listener.close)
    return sockets


def _bind_ingrain(
    config: Config, bind_port: Callable[..., list[socket.socket]]
) -> Mapping[IngrainPort, BoundListener]:
    """Binds the ports for clients of Ingrain. One port alone serves everything, as the first
    server did."""
    ingrain = config.ingrain
    inference: IngrainPort = "inference" if ingrain.model_port else "all"
    ports: tuple[tuple[IngrainPort, int, str], ...] = (
        (inference, ingrain.port, "ingrain.port"),
        ("models", ingrain.model_port, "ingrain.model_port"),
    )
    bound = {kind: bind_port(port, setting, host=ingrain.host) for kind, port, setting in ports}
    return {
        kind: BoundListener(sockets, None, urls(ingrain.host, sockets, is_tls=False))
        for kind, sockets in bound.items()
        if sockets
    }


def _bind_wyoming(
    wyoming: WyomingConfig, stack: ExitStack, bind: Bind
) -> tuple[list[socket.socket], Sequence[str]]:
    """Binds the Wyoming port; returns (sockets, notes for the log). No sockets if it is off, or if
    another program has the usual port: then a note says so. Raises AddressInUse for any other port.
    """
    if wyoming.port == 0:
        return [], ()
    try:
        sockets = bind(wyoming.host, wyoming.port, setting="wyoming.port")
    except AddressInUse as error:
        if wyoming.port != USUAL_PORT:
            raise
        return [], (f"there is no Wyoming server: {error}",)
    for listener in sockets:
        stack.callback(listener.close)
    return sockets, ()


def _bind_machines(config: Config, stack: ExitStack, bind: Bind) -> list[socket.socket]:
    """Binds the port for the servers of other machines. None is bound if this one works alone."""
    if not config.machines.is_on:
        return []
    sockets = bind(config.machines.host, config.machines.port, setting="machines.port")
    for listener in sockets:
        stack.callback(listener.close)
    return sockets


def _machines_listener(
    config: Config, sockets: Sequence[socket.socket], names: Sequence[str]
) -> BoundListener | None:
    """Returns the listener for the servers of other machines. Its certificate is always our own:
    the others know it by its fingerprint. A gateway beside the home gateway has no sockets."""
    if not config.machines.is_on:
        return None
    folder = open_folder(config.paths.state_dir)
    tls = open_tls("auto", folder, names, lan_addresses(), datetime.now(UTC))
    addresses = urls(config.machines.host, sockets, is_tls=True) if sockets else ()
    return BoundListener(sockets, tls, addresses)


def _bound_listener(
    config: Config, sockets: Sequence[socket.socket], tls: TlsContext | None
) -> BoundListener:
    return BoundListener(sockets, tls, urls(config.server.host, sockets, is_tls=tls is not None))


def _plain_listener(host: str, sockets: Sequence[socket.socket]) -> BoundListener | None:
    """Returns a listener for plain HTTP; None without sockets."""
    return BoundListener(sockets, None, urls(host, sockets, is_tls=False)) if sockets else None


def _server_names(config: Config) -> list[str]:
    """Lists the names that this server may have in a Host header or a certificate."""
    configured_host = [] if is_unspecified(config.server.host) else [config.server.host]
    return list(dict.fromkeys([*own_names(), *configured_host, *config.server.allowed_hosts]))
