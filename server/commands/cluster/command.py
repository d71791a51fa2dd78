"""`earshot cluster start|join|status`: runs one node of a Ray cluster in the foreground, or shows
the cluster."""

import argparse
import asyncio
import os
import secrets
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn

import msgspec

from core.errors import ConfigError
from core.net.ip_addresses import IpAddress
from server.commands.cluster.arguments import DEFAULT_PORT
from server.commands.columns import align_columns
from server.commands.exit_codes import ExitCode
from server.compose.cluster import cluster_of, ray_environment, read_token_file, token_file
from server.config import Config
from server.net.addresses import address_of, lan_addresses, url_host
from server.runtime.state_dir import open_folder, write_private
from serving.cluster.deployment import ClusterStatus, import_ray

MIN_OBJECT_STORE_MB = 80
"Smallest object store that Ray accepts, rounded up."

LIST_HEADS = ("MODEL", "STATE", "REPLICAS")


def run(options: argparse.Namespace, config: Config, environ: Mapping[str, str]) -> ExitCode:
    """Runs one action. `start` and `join` replace this process by Ray's. Raises ConfigError."""
    if options.action != "status":
        _run_node(options, config, environ)
    print(_show(asyncio.run(_status(config)), as_json=options.json))
    return ExitCode.OK


def _run_node(options: argparse.Namespace, config: Config, environ: Mapping[str, str]) -> NoReturn:
    """Replaces this process by Ray's, which runs the node. Raises ConfigError."""
    address = node_address(options.address, lan_addresses(), is_shielded=options.behind_firewall)
    command = node_command(options, address)
    if options.action == "start":
        _make_token(config)
    environment = ray_environment(read_token_file(config))
    import_ray()
    if options.action == "start":
        head = f"{url_host(str(address))}:{options.port}"
        print(f"cluster.address of the settings: {head}")
        print(f"on other machines: earshot cluster join {head}")
        print(f"the token of the cluster is in {token_file(config)}", flush=True)
    os.execve(command[0], command, {**environ, **environment})  # noqa: S606


def node_address(wanted: str | None, own: Sequence[IpAddress], *, is_shielded: bool) -> IpAddress:
    """Returns the address that a node uses. `wanted`: the one of the command line. `own`: addresses
    of this machine. `is_shielded`: a firewall protects the public ones.

    Raises ConfigError for a public address, and if it is not clear which one to use.
    """
    public = [address for address in own if address.is_global]
    if public and not is_shielded:
        raise ConfigError(
            f"this machine has the public address {public[0]}, and Ray listens on all addresses;"
            " with --behind-firewall it starts anyway"
        )
    private = [address for address in own if not address.is_global]
    if wanted is None:
        # Two families of one network are common; then the first, of IPv4, is meant.
        usable = [address for address in private if address.version == private[0].version]
        if len(usable) != 1:
            found = ", ".join(map(str, private)) or "none"
            raise ConfigError(f"--address: say which address other machines use; found: {found}")
        return usable[0]
    address = address_of(wanted)
    if address is None or address.is_global or address.is_unspecified or address.is_loopback:
        raise ConfigError(
            f"--address: {wanted!r} is no private address; allowed: one of this machine such as"
            " 10.0.0.5. Ray cannot use 127.0.0.1"
        )
    if address not in own:
        found = ", ".join(map(str, own)) or "none"
        raise ConfigError(f"--address: this machine has no address {wanted}; it has: {found}")
    return address


def node_command(options: argparse.Namespace, address: IpAddress) -> list[str]:
    """Returns the command line that runs a node in the foreground. Raises ConfigError for a wrong
    option."""
    if options.object_store_mb < MIN_OBJECT_STORE_MB:
        raise ConfigError(f"--object-store-mb: at least {MIN_OBJECT_STORE_MB} MB")
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block"]
    if options.action == "start":
        if not 1 <= options.port <= 65_535:
            raise ConfigError(f"--port: 1 to 65535, such as {DEFAULT_PORT}")
        command += ["--head", f"--port={options.port}", "--include-dashboard=false"]
    else:
        command.append(f"--address={options.head}")
    command += [
        f"--node-ip-address={address}",
        f"--object-store-memory={options.object_store_mb * 1_000_000}",
        "--disable-usage-stats",
    ]
    for name in ("cpus", "gpus"):
        count = getattr(options, name)
        if count is not None and count < 0:
            raise ConfigError(f"--{name}: 0 or more")
        command += [] if count is None else [f"--num-{name}={count}"]
    return command


def _make_token(config: Config) -> None:
    """Makes the cluster's token if there is none. Raises ConfigError."""
    file = token_file(config)
    if not file.exists():
        open_folder(str(file.parent))
        write_private(file, secrets.token_hex(32).encode())


async def _status(config: Config) -> ClusterStatus:
    cluster = cluster_of(config, os.environ)
    async with cluster.connected():
        return await cluster.status()


def _show(status: ClusterStatus, *, as_json: bool) -> str:
    """Formats the state of the cluster for people or as JSON."""
    if as_json:
        return msgspec.json.encode(status).decode()
    machines = [
        f"{node.address}: {node.cpus:g} processors, {node.gpus:g} GPUs" for node in status.nodes
    ]
    models = [(model.name, model.state, str(model.replicas)) for model in status.models]
    listing = align_columns([LIST_HEADS, *models]) if models else ["no models run"]
    return "\n".join([*machines, *listing])
