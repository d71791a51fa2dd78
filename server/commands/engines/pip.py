"""Runs pip in another environment and turns its output into short messages.
`python -m server.commands.engines.pip pip|venv` reads the output of pip or venv and prints why it
failed. scripts/install.sh uses that, so this file needs nothing but Python."""

import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Sequence
from importlib.metadata import distributions
from pathlib import Path
from typing import TextIO

from core.errors import EarshotError
from server.models.errors import HubUnreachable

REPORTED_MB = 20.0
"Smallest download that is reported, in MB. Smaller ones are many, and take no time."

KEPT_LINES = 40
"Number of pip's last lines that are kept to explain a failure."

_BYTES = re.compile(r"^Progress (\d+) of (\d+)$")
_SIZE = re.compile(r"^\s*Downloading (\S+) \(([\d.]+) (kB|MB|GB)\)")
_MB = {"kB": 1e-3, "MB": 1.0, "GB": 1e3}

NETWORK_ERRORS = (
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
"""Texts in pip's output when the index cannot be reached. pip itself only reports that it finds no
package."""


VENV_ERRORS = ("No module named ensurepip", "No module named venv", "ensurepip is not available")
"Texts in the output of Debian's and Ubuntu's Python when python3-venv is missing."

_NOT_WRITABLE = re.compile(r"\[Errno (?:13|30)\] ([A-Z][a-z -]+): '([^']+)'")
_NO_DISTRIBUTION = re.compile(r"^ERROR: No matching distribution found for (.+)$", re.MULTILINE)
_WRONG_HASH = re.compile(r"^ {4}(\S+) from ", re.MULTILINE)
"Name of the package in pip's message about a wrong hash."


class InstallError(EarshotError):
    """Raised when an environment cannot be made or filled; the message gives the reason."""

    code = "engine_install_failed"


class IndexUnreachable(HubUnreachable):
    """Raised when the package index cannot be reached."""

    code = "index_unreachable"


def pip(
    python: Path,
    *arguments: str,
    report_progress: Callable[[str], None],
    report_bytes: Callable[[int, int], None] | None = None,
    log: TextIO | None = None,
) -> None:
    """Runs `python -m pip ARGUMENTS`. `report_progress`: receives messages. `report_bytes`:
    receives the bytes of a file that were downloaded and their total, if ARGUMENTS have
    `progress_options`. `log`: receives the whole output of pip. Raises InstallError or
    IndexUnreachable."""
    base = [str(python), "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command = [*base, *arguments]
    last_lines: deque[str] = deque(maxlen=KEPT_LINES)
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if report_bytes and (done := _BYTES.match(line)):
                    report_bytes(int(done[1]), int(done[2]))
                    continue
                last_lines.append(line.rstrip())
                if log:
                    log.write(line)
                if message := large_download_message(line):
                    report_progress(message)
        except BaseException:
            process.terminate()
            raise
    if process.returncode:
        raise failure(last_lines)


def progress_options(site_packages: Path | None = None) -> tuple[str, str]:
    """Returns the options with which pip prints the bytes that it has downloaded. Before 24.1, as
    in a new environment of Python 3.11, it cannot. `site_packages`: folder of another environment's
    packages."""
    path = [str(site_packages)] if site_packages else sys.path
    versions = [found.version.split(".") for found in distributions(name="pip", path=path)]
    can_print = any((int(major), int(minor)) >= (24, 1) for major, minor, *_ in versions[:1])
    return ("--progress-bar", "raw" if can_print else "off")


def large_download_message(line: str) -> str:
    """Returns the message for a line of pip about a large download; empty for any other line."""
    match = _SIZE.match(line)
    if match is None:
        return ""
    size_mb = float(match[2]) * _MB[match[3]]
    if size_mb < REPORTED_MB:
        return ""
    name = match[1].rpartition("/")[2].partition("-cp")[0].partition("-py")[0]
    return f"downloading {name} ({size_mb:.0f} MB)"


def failure(lines: Sequence[str]) -> EarshotError:
    """Returns the error for pip's last lines of output, with advice for known causes."""
    text = "\n".join(lines)
    if reason := _disk_problem(text):
        return InstallError(reason)
    if "DO NOT MATCH THE HASHES" in text:
        names = ", ".join(_WRONG_HASH.findall(text)) or "a package"
        return InstallError(f"{names}: the download does not match its hash; it is not installed")
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return IndexUnreachable(
            "the package index's certificate is not trusted; pip's own settings (pip config,"
            " PIP_CERT) say what is"
        )
    if "not a trusted or secure host" in text:
        return InstallError("pip refuses an index over plain http; use https, or PIP_TRUSTED_HOST")
    if any(error_text in text for error_text in NETWORK_ERRORS):
        return IndexUnreachable(
            "the package index cannot be reached; pip's own settings (pip config, PIP_INDEX_URL,"
            " HTTPS_PROXY) say where and how"
        )
    if match := _NO_DISTRIBUTION.search(text):
        return InstallError(f"the package index does not have {match[1]}")
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return InstallError(f"pip: {'; '.join((errors or list(lines))[-3:])}")


def venv_failure(lines: Sequence[str]) -> InstallError:
    """Returns the error for the last lines of `python -m venv` or `python -m ensurepip`."""
    text = "\n".join(lines)
    if reason := _disk_problem(text):
        return InstallError(reason)
    if any(error_text in text for error_text in VENV_ERRORS):
        return InstallError(
            "this Python cannot create virtual environments; on Debian and Ubuntu:"
            " apt install python3-venv"
        )
    messages = [line.strip() for line in lines if line.strip()]
    return InstallError(f"python -m venv: {messages[-1] if messages else 'no reason given'}")


def _disk_problem(text: str) -> str:
    """Returns why nothing could be written; empty if the disk is not the problem."""
    if "No space left on device" in text or "Errno 28" in text:
        return "the disk is full; pip also needs room in TMPDIR"
    if "Disk quota exceeded" in text:
        return "the disk quota is used up; pip also needs room in TMPDIR"
    if match := _NOT_WRITABLE.search(text):
        return f"{match[2]} cannot be written: {match[1].lower()}"
    if "No usable temporary directory" in text:
        return "no temporary folder can be written (TMPDIR, /tmp): the disk is full or read-only"
    return ""


if __name__ == "__main__":
    output = sys.stdin.read().splitlines()
    print(venv_failure(output) if sys.argv[1:] == ["venv"] else failure(output))
