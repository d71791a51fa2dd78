"""Debian's PostgreSQL in a temporary folder, on a free port of this machine, by an unprivileged
user."""

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

from tests.conftest import require
from tests.ports import reserved_port

START_S = 60.0

OWNER = "earshot"


def _programs() -> Path | None:
    """Returns the folder of its programs: Debian has one per version, outside the PATH."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda one: one.parts[4])
    if not found and (other := shutil.which("initdb")):
        return Path(other).parent
    return found[-1].parent if found else None


@dataclass
class Postgres:
    folder: Path
    programs: Path
    port: int
    password: str
    address: str = "127.0.0.1"

    def url(self, database: str) -> str:
        return f"postgresql://{OWNER}:{self.password}@{self.address}:{self.port}/{database}"

    def create(self) -> str:
        """Creates an empty database and returns its URL."""
        name = f"test_{secrets.token_hex(6)}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")  # type: ignore[call-overload, unused-ignore]
        return self.url(name)

    def restored_copy(self, url: str) -> str:
        """Copies a database with `pg_dump` and `pg_restore`, as its operator would. Returns the URL
        of the new one."""
        dump, new = str(self.folder / "dump"), self.create()
        self._run("pg_dump", "--format=custom", f"--file={dump}", url)
        self._run("pg_restore", f"--dbname={new}", "--exit-on-error", dump)
        return new

    def start(self) -> None:
        """Starts it and waits until it accepts connections."""
        self._run("pg_ctl", "-D", self._data, "-l", str(self.folder / "log"), "-w", "start")

    def stop(self) -> None:
        self._run("pg_ctl", "-D", self._data, "-m", "immediate", "-w", "stop")

    def make(self) -> None:
        words = self.folder / "password"
        words.write_text(self.password, encoding="ascii")
        if os.getuid() == 0:  # which PostgreSQL refuses to run as
            user = _unprivileged()
            for path in (self.folder, words):
                os.chown(path, user.pw_uid, user.pw_gid)
        auth = ("--auth=scram-sha-256", f"--pwfile={words}", f"--username={OWNER}")
        self._run("initdb", "-D", self._data, *auth, "--encoding=UTF8", "--no-sync")
        config = (
            f"port = {self.port}\nlisten_addresses = '{self.address}'\nfsync = off\n"
            f"unix_socket_directories = '{self.folder}'\n"
        )
        with (self.folder / "data" / "postgresql.conf").open("a", encoding="utf-8") as file:
            file.write(config)
        with (self.folder / "data" / "pg_hba.conf").open("a", encoding="utf-8") as file:
            file.write("host all all samenet scram-sha-256\n")

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def _run(self, program: str, *arguments: str) -> None:
        user = _unprivileged().pw_name if os.getuid() == 0 else None
        done = subprocess.run(
            [str(self.programs / program), *arguments],
            user=user,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE if program == "initdb" else subprocess.DEVNULL,
            stderr=subprocess.STDOUT if program == "initdb" else subprocess.DEVNULL,
            timeout=START_S,
            check=False,
        )
        log = self.folder / "log"
        why = done.stdout or (log.read_bytes() if log.exists() else b"")
        assert done.returncode == 0, why.decode(errors="replace")


@contextmanager
def postgres(address: str = "127.0.0.1") -> Iterator[Postgres]:
    """`address`: of this machine, on which it listens."""
    programs = _programs()
    require(programs, "PostgreSQL (apt-get install postgresql)")
    assert programs is not None
    folder = Path(tempfile.mkdtemp(prefix="earshot-pg-"))  # pytest's own are root's alone
    try:
        with reserved_port() as port:
            server = Postgres(folder, programs, port, secrets.token_hex(8), address)
            server.make()
            server.start()
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _unprivileged() -> pwd.struct_passwd:
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    raise AssertionError("no unprivileged user")
