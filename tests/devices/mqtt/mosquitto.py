"""Debian's mosquitto on loopback, with and without TLS and a password."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from server.net.tls import open_tls
from tests.conftest import require
from tests.devices.mqtt.fake_broker import Scene

USER, PASSWORD = "earshot", "correct horse"
TIMEOUT_S = 20


@dataclass
class Mosquitto:
    """A broker that can be killed and started again on the same port."""

    port: int
    configuration: Path
    certificate: Path | None = None
    said: list[str] = field(default_factory=list)
    process: subprocess.Popen[str] | None = None
    _reader: Thread | None = None

    def start(self) -> None:
        """Starts it; returns when it listens."""
        process = subprocess.Popen(
            [program(), "-c", str(self.configuration), "-v"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        listens = Event()

        def read() -> None:
            assert process.stdout is not None
            with process.stdout:
                for line in process.stdout:
                    self.said.append(line.rstrip())
                    if "running" in line or "Error" in line:
                        listens.set()

        self._reader = Thread(target=read, daemon=True)
        self._reader.start()
        self.process = process
        assert listens.wait(TIMEOUT_S), "\n".join(self.said)
        assert process.poll() is None, "\n".join(self.said)

    def kill(self) -> None:
        """Ends it as a lost machine would: nobody is told."""
        assert self.process is not None
        assert self._reader is not None
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        self._reader.join(TIMEOUT_S)


def program() -> str:
    """Returns the path of the program; Debian puts it where only root looks."""
    found = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    require(found, "needs mosquitto")
    assert found is not None
    return found


@contextmanager
def mosquitto(folder: Path, port: int, *, is_secured: bool = False) -> Iterator[Mosquitto]:
    """Runs it. `is_secured`: with TLS, and a user and a password."""
    lines = [f"listener {port} 127.0.0.1", "persistence false", "log_dest stderr"]
    certificate = None
    if is_secured:
        open_tls("auto", folder, ("localhost",), (ip_address("127.0.0.1"),), datetime.now(UTC))
        certificate = folder / "tls.pem"  # with its key
        passwords = folder / "passwords"
        subprocess.run(["mosquitto_passwd", "-b", "-c", str(passwords), USER, PASSWORD], check=True)
        lines += [f"certfile {certificate}", f"keyfile {certificate}"]
        lines += ["allow_anonymous false", f"password_file {passwords}"]
    else:
        lines += ["allow_anonymous true"]
    if os.geteuid() == 0:
        lines += ["user root"]  # else it becomes a user who cannot read the folder of the test
    configuration = folder / "mosquitto.conf"
    configuration.write_text("\n".join(lines) + "\n")
    broker = Mosquitto(port, configuration, certificate)
    broker.start()
    try:
        yield broker
    finally:
        with suppress(ProcessLookupError):
            broker.kill()


def broker_connect() -> Any:
    """Returns the function that connects to a real broker. Its library is not everywhere."""
    pytest.importorskip("aiomqtt", reason="needs aiomqtt")
    from devices.mqtt.broker import connect

    return connect


@asynccontextmanager
async def running(scene: Scene) -> AsyncIterator[None]:
    """Runs the client of the scene while the body runs."""
    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(scene.client.run())
        yield
        task.cancel()
