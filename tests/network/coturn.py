"""Debian's coturn on the router, with credentials per session."""

import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from threading import Event, Thread

from server.net.tls import open_tls
from tests.network.namespaces import ROUTER, Networks, inside

PORT, TLS_PORT = 3478, 5349
SECRET = "north-by-northwest"
TIMEOUT_S = 20


@dataclass
class Coturn:
    said: list[str]
    certificate: Path
    "Of its TLS port, signed by itself."

    def users(self) -> set[str]:
        """Returns the users that were given a relayed address."""
        pattern = r"user <([^>]+)>: incoming packet ALLOCATE processed, success"
        return {found for line in self.said for found in re.findall(pattern, line)}


@contextmanager
def coturn(networks: Networks, folder: Path) -> Iterator[Coturn]:
    """Runs it; yields when it listens."""
    open_tls("auto", folder, (), (ip_address(ROUTER),), datetime.now(UTC))
    certificate = folder / "tls.pem"  # with its key
    command = [
        *("turnserver", "-n", "--verbose", "--no-cli", "--no-dtls", "--simple-log"),
        *("--cert", str(certificate), "--pkey", str(certificate)),
        *("--tls-listening-port", str(TLS_PORT)),
        *("--log-file", "stdout", "--pidfile", str(folder / "pid"), "--db", str(folder / "db")),
        *("--listening-ip", ROUTER, "--relay-ip", ROUTER, "--listening-port", str(PORT)),
        *("--realm", "earshot.example", "--use-auth-secret", "--static-auth-secret", SECRET),
    ]
    process = subprocess.Popen(
        inside(networks.router, *command),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said: list[str] = []
    listens = Event()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line.rstrip())
            if "Total General servers" in line:
                listens.set()

    reader = Thread(target=read, daemon=True)
    reader.start()
    try:
        assert listens.wait(TIMEOUT_S), "\n".join(said)
        yield Coturn(said, certificate)
    finally:
        process.kill()
        process.wait(TIMEOUT_S)
        reader.join(TIMEOUT_S)
