"""Time zones in the form of the firmware: POSIX TZ strings, from this machine's own database."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from zoneinfo import TZPATH, available_timezones

MAX_FOOTER_BYTES = 128
"Largest number of bytes that are read at the end of a file. Every rule is shorter."


@cache
def posix_zones() -> Mapping[str, str]:
    """Returns names and rules, `Europe/Berlin` -> `CET-1CEST,M3.5.0,M10.5.0/3`.

    Empty where the machine has no database. Reads some 600 small files, once. The rule is the last
    line of a file (RFC 8536 section 3.3).
    """
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
