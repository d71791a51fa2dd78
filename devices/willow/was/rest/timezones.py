"""Time zones as the firmware takes them: POSIX TZ strings, from this machine's own database."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from zoneinfo import TZPATH, available_timezones

MAX_FOOTER_BYTES = 128


@cache
def posix_zones() -> Mapping[str, str]:
    """`Europe/Berlin` -> `CET-1CEST,M3.5.0,M10.5.0/3`; empty where the machine has no database.
    Reads some 600 small files, once. RFC 8536 section 3.3: the string is a file's last line."""
    found = {name: _footer(name) for name in sorted(available_timezones())}
    return {name: rule for name, rule in found.items() if rule}


def _footer(name: str) -> str:
    for folder in TZPATH:
        file = Path(folder) / name
        if file.is_file():
            data = file.read_bytes()[-MAX_FOOTER_BYTES:]
            lines = data.rsplit(b"\n", 2)
            is_whole = data.endswith(b"\n") and len(lines) == 3
            return lines[1].decode("ascii", "ignore") if is_whole else ""
    return ""
