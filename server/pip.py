"""pip in another environment: its progress in few lines, its failures in one."""

import re
import subprocess
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TextIO

from core.errors import EarshotError
from server.models.errors import HubUnreachable

TOLD_MB = 20.0
"Downloads from this size on are told of: the others are many, and quick."

KEPT_LINES = 40

_SIZE = re.compile(r"^\s*Downloading (\S+) \(([\d.]+) (kB|MB|GB)\)")
_MB = {"kB": 1e-3, "MB": 1.0, "GB": 1e3}

NO_NETWORK = (
    "NewConnectionError",
    "Temporary failure in name resolution",
    "Name or service not known",
    "ConnectTimeoutError",
    "Connection refused",
    "Network is unreachable",
    "Failed to establish a new connection",
    "NameResolutionError",
    "ProxyError",
)
"What pip says of each try when there is no way to the index; then it finds no package."


class InstallFailed(EarshotError):
    """An engine's environment could not be made; the message says why."""

    code = "engine_install_failed"


class IndexUnreachable(HubUnreachable):
    """There is no way to the package index."""

    code = "index_unreachable"


def pip(
    python: Path, *arguments: str, tell: Callable[[str], None], log: TextIO | None = None
) -> None:
    """Run `python -m pip ARGUMENTS`. Raises InstallFailed, IndexUnreachable."""
    base = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command = [*base, *arguments]
    last: deque[str] = deque(maxlen=KEPT_LINES)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as running:
        try:
            assert running.stdout is not None
            for line in running.stdout:
                last.append(line.rstrip())
                if log:
                    log.write(line)
                if said := large_download(line):
                    tell(said)
        except BaseException:
            running.terminate()
            raise
    if running.returncode:
        raise failure(last)


def large_download(line: str) -> str:
    """What to tell of a line of pip; empty: nothing."""
    found = _SIZE.match(line)
    if found is None:
        return ""
    size_mb = float(found[2]) * _MB[found[3]]
    if size_mb < TOLD_MB:
        return ""
    name = found[1].rpartition("/")[2].partition("-cp")[0].partition("-py")[0]
    return f"downloading {name} ({size_mb:.0f} MB)"


def failure(lines: Sequence[str]) -> EarshotError:
    """What pip's last lines mean."""
    text = "\n".join(lines)
    if "No space left on device" in text or "Errno 28" in text:
        return InstallFailed("the disk is full; pip also needs room in TMPDIR")
    if any(sign in text for sign in NO_NETWORK):
        return IndexUnreachable(
            "the package index cannot be reached; pip's own settings (pip config, PIP_INDEX_URL,"
            " HTTPS_PROXY) say where and how"
        )
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return InstallFailed(f"pip: {'; '.join((errors or list(lines))[-3:])}")
