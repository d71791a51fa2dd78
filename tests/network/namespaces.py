"""Two networks with a router between them that lets TCP through and no UDP, as some firewalls do.

    caller 10.79.1.2 ---- 10.79.1.1 router 10.79.2.1 ---- 10.79.2.2 server

Each is a network namespace; a TURN server on the router is reached from both. Needs root.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

CALLER, ROUTER, SERVER = "10.79.1.2", "10.79.1.1", "10.79.2.2"
_ROUTER_2 = "10.79.2.1"


@dataclass(frozen=True)
class Networks:
    caller: str
    router: str
    server: str


def missing() -> str:
    """Returns what this machine lacks for network namespaces; empty if nothing."""
    for program in ("ip", "iptables", "turnserver"):
        if shutil.which(program) is None:
            return f"needs the program {program}"
    probe = f"earshot-{os.getpid()}-probe"
    try:
        _ip("netns", "add", probe)
    except subprocess.CalledProcessError as error:
        return f"needs the right to make network namespaces: {error.stderr.strip()}"
    try:
        _in(probe, "iptables", "-A", "FORWARD", "-p", "udp", "-j", "DROP")
    except subprocess.CalledProcessError as error:
        return f"needs a kernel with iptables: {error.stderr.strip()}"
    finally:
        _ip("netns", "del", probe)
    return ""


@contextmanager
def networks() -> Iterator[Networks]:
    """Makes the networks; removes them afterwards with everything in them."""
    tag = f"earshot-{os.getpid()}"
    made = Networks(f"{tag}-caller", f"{tag}-router", f"{tag}-server")
    with ExitStack() as stack:
        for name in (made.caller, made.router, made.server):
            _ip("netns", "add", name)
            stack.callback(_ip, "netns", "del", name)
            _in(name, "ip", "link", "set", "lo", "up")
        _connect(made.caller, CALLER, made.router, ROUTER)
        _connect(made.server, SERVER, made.router, _ROUTER_2)
        _in(made.router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        _in(made.router, "iptables", "-A", "FORWARD", "-p", "udp", "-j", "DROP")
        yield made


def dropped_packets(made: Networks) -> int:
    """Returns the number of UDP packets that tried the direct way and were dropped."""
    listed = _in(made.router, "iptables", "-L", "FORWARD", "-v", "-x", "-n")
    return next(int(line.split()[0]) for line in listed.splitlines() if "DROP" in line)


def block_udp(made: Networks) -> None:
    """Makes the router accept UDP only from itself: its TURN server is left with TCP."""
    _in(made.router, "iptables", "-A", "INPUT", "-p", "udp", "!", "-i", "lo", "-j", "DROP")


def leave_only(made: Networks, tcp_port: int) -> None:
    """Leaves only this port of the router open, as a strict firewall does."""
    allowed = ("-p", "tcp", "--dport", str(tcp_port))
    _in(made.router, "iptables", "-A", "INPUT", *allowed, "-j", "ACCEPT")
    _in(made.router, "iptables", "-A", "INPUT", "!", "-i", "lo", "-j", "DROP")


def unplug(made: Networks) -> None:
    """Disconnects the caller from the network."""
    _in(made.caller, "ip", "link", "set", "up0", "down")


def inside(namespace: str, *command: str) -> list[str]:
    """Returns the command that runs this one in a namespace."""
    return ["ip", "netns", "exec", namespace, *command]


def _connect(leaf: str, address: str, router: str, gateway: str) -> None:
    port = f"to-{address.replace('.', '')}"[:15]
    _in(leaf, "ip", "link", "add", "up0", "type", "veth", "peer", "name", port, "netns", router)
    for namespace, link, own in ((leaf, "up0", address), (router, port, gateway)):
        _in(namespace, "ip", "addr", "add", f"{own}/24", "dev", link)
        _in(namespace, "ip", "link", "set", link, "up")
    _in(leaf, "ip", "route", "add", "default", "via", gateway)


def _in(namespace: str, *command: str) -> str:
    done = subprocess.run(
        inside(namespace, *command), check=True, capture_output=True, text=True, timeout=20
    )
    return done.stdout


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True, timeout=20)
