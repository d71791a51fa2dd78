"""Two machines, each a network namespace, on a bridge to which this machine belongs, too:

    server 10.78.N.11 ---- bridge 10.78.N.1 (tests, PostgreSQL) ---- server 10.78.N.12

Needs root.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.network.namespaces import inside
from tests.server.process import LOADS_HERE, Running, environment
from tests.shared import ROOT

API_KEY = "one-key-for-both-machines"
SHARED_KEY = "5" * 64


@dataclass(frozen=True)
class Machines:
    """Both namespaces with their addresses; the last address is the one of the tests."""

    names: tuple[str, str]
    addresses: tuple[str, str]
    here: str

    def partition(self) -> None:
        """Drops all packets between the two machines. Both still reach this one."""
        self._filter("-A")

    def heal(self) -> None:
        self._filter("-D")

    def _filter(self, action: str) -> None:
        rule = (action, "INPUT", "-s", self.addresses[1], "-j", "DROP")
        _run(*inside(self.names[0], "iptables", *rule))


def missing() -> str:
    """Returns what this machine lacks for network namespaces; empty if nothing."""
    for program in ("ip", "iptables"):
        if shutil.which(program) is None:
            return f"needs the program {program}"
    probe = f"earshot-{os.getpid()}-probe"
    try:
        _run("ip", "netns", "add", probe)
    except subprocess.CalledProcessError as error:
        return f"needs the right to make network namespaces: {error.stderr.strip()}"
    try:
        _run(*inside(probe, "iptables", "-A", "INPUT", "-s", "10.0.0.1", "-j", "DROP"))
    except subprocess.CalledProcessError as error:
        return f"needs a kernel with iptables: {error.stderr.strip()}"
    finally:
        _run("ip", "netns", "del", probe)
    return ""


@contextmanager
def machines() -> Iterator[Machines]:
    """Makes both machines; removes them afterwards with everything in them."""
    process = os.getpid()
    network, bridge = f"10.78.{process % 250}", f"ear{process}"
    made = Machines(
        (f"earshot-{process}-a", f"earshot-{process}-b"),
        (f"{network}.11", f"{network}.12"),
        f"{network}.1",
    )
    with ExitStack() as stack:
        _run("ip", "link", "add", bridge, "type", "bridge")
        stack.callback(_run, "ip", "link", "del", bridge)
        _run("ip", "addr", "add", f"{made.here}/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        for index, (name, address) in enumerate(zip(made.names, made.addresses, strict=True)):
            _run("ip", "netns", "add", name)
            stack.callback(_run, "ip", "netns", "del", name)
            port = f"{bridge}p{index}"
            pair = ("type", "veth", "peer", "name", "up0", "netns", name)
            _run("ip", "link", "add", port, *pair)
            _run("ip", "link", "set", port, "master", bridge, "up")
            _run(*inside(name, "ip", "link", "set", "lo", "up"))
            _run(*inside(name, "ip", "addr", "add", f"{address}/24", "dev", "up0"))
            _run(*inside(name, "ip", "link", "set", "up0", "up"))
        yield made


@contextmanager
def serving_in(made: Machines, index: int, folder: Path, database_url: str) -> Iterator[Running]:
    """Runs `earshot serve` on one of the machines; yields when it is ready."""
    folder.mkdir()
    key_file = folder / "key"
    key_file.write_text(SHARED_KEY, encoding="ascii")
    key_file.chmod(0o600)
    address = made.addresses[index]
    settings = {
        "EARSHOT_SERVER__HOST": address,
        "EARSHOT_SERVER__API_KEY": API_KEY,
        "EARSHOT_SERVER__MAX_SESSIONS": "5",
        "EARSHOT_DEVICES__DATABASE": database_url,
        "EARSHOT_DEVICES__APPROVAL": "networks",
        "EARSHOT_MACHINES__HOST": address,
        "EARSHOT_MACHINES__KEY_FILE": str(key_file),
        "EARSHOT_WILLOW__WAS_PORT": "8502",
        "EARSHOT_WILLOW__NETWORKS": "lan",
    }
    command = [sys.executable, "-m", "server", "serve", "--port", "8080"]
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as written:
        process = subprocess.Popen(
            inside(made.names[index], *command),
            cwd=folder,
            env={**environment(folder, **LOADS_HERE, **settings), "PYTHONPATH": str(ROOT)},
            stdout=written,
            stderr=written,
        )
    server = Running(process, os.fdopen(reader, encoding="utf-8"))  # type: ignore[arg-type]
    try:
        server.start_reading()
        yield server
    finally:
        process.kill()
        server.ended()
        server.output.close()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=20)
