"""Checks early whether the port is taken: `python -m server.net.port_check [OPTIONS OF SERVE]`.

Exits with 3 if `earshot serve` would find its port taken. `make run` calls it before it installs or
fetches anything, so it needs nothing but Python. It reads only the host and the port; `earshot
serve` reports every mistake in the settings."""

import argparse
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from core.errors import EarshotError
from server.net.listeners import AddressInUse, bind

HOST, PORT = "127.0.0.1", 8080
"The defaults of `server.host` and `server.port`."


def address(arguments: Sequence[str], environ: Mapping[str, str]) -> tuple[str, int]:
    """Returns (host, port) of the server: from flags, variables, the file or defaults. Raises
    ValueError."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for flag in ("--host", "--port", "--config"):
        parser.add_argument(flag)
    try:
        options, _ = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise ValueError(str(error)) from error
    file = Path(options.config or environ.get("EARSHOT_CONFIG") or "earshot.toml")
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8")).get("server", {})
    except OSError:
        table = {}

    def read_setting(name: str, default: str) -> str:
        variables = (f"EARSHOT_{name.upper()}", f"EARSHOT_SERVER__{name.upper()}")
        values = [environ[variable] for variable in variables if variable in environ]
        return str(getattr(options, name) or (values or [table.get(name, default)])[0])

    return read_setting("host", HOST), int(read_setting("port", str(PORT)))


def main(arguments: Sequence[str], environ: Mapping[str, str]) -> int:
    """Returns 3 if the port is taken, else 0. Settings that cannot be read here are left to the
    server."""
    try:
        host, port = address(arguments, environ)
        for listener in bind(host, port):
            listener.close()
    except AddressInUse as error:
        print(f"earshot: {error} (make run PORT=9000)", file=sys.stderr)
        return 3
    except (EarshotError, ValueError, AttributeError, OverflowError):
        return 0
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
