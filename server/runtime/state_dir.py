"""State folder with files that only their owner may read: the API key and the certificate."""

import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path

from core.errors import ConfigError
from core.private_files import make_private

KEY_FILE = "api-key"
TLS_FILE = "tls.pem"
"Names of the files in the state folder."

KEY_PATTERN = "[A-Za-z0-9._~-]{16,256}"
"""Characters and length of a key. None of the characters needs quoting in a URL or a WebSocket
subprotocol. A key of fewer than 16 characters could be guessed in months, at thousands of attempts
a second."""
KEY_CHARS = "16 to 256 of A-Z a-z 0-9 . _ ~ -"
"Rule for keys in words, for error messages."


def open_folder(path: str) -> Path:
    """Returns the state folder, and creates it if needed. Raises ConfigError if that fails."""
    folder = Path(path).expanduser()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"config.paths.state_dir: {folder}: {error.strerror or error}") from error
    return folder


def restrict_access(path: str) -> Sequence[str]:
    """Removes other users' rights from the state folder and from our files in it, if they exist.
    The database protects its own files. Returns log lines that say what was changed. Raises
    ConfigError for files of another user."""
    folder = Path(path).expanduser()
    own_paths = (folder, folder / KEY_FILE, folder / TLS_FILE)
    return [
        change for path_ in own_paths if (change := make_private(path_, "config.paths.state_dir"))
    ]


def write_private(file: Path, data: bytes, mode: int = 0o600) -> None:
    """Writes a file, whole or not at all. `mode`: its rights; only the owner can read it, unless
    more is given. Raises ConfigError."""
    partial = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fchmod(descriptor, mode)
            os.fsync(descriptor)  # else the file may be empty after a power failure
        partial.replace(file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {file}: {error.strerror or error}") from error


def read_key(path: str) -> str | None:
    """Returns the key that an earlier start stored, or None. Raises ConfigError if the file is
    unreadable or holds a key that is too easy to guess."""
    file = Path(path).expanduser() / KEY_FILE
    try:
        key = file.read_text(encoding="ascii").strip()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the key in {file}: {error}") from error
    if key and not re.fullmatch(KEY_PATTERN, key):
        raise ConfigError(
            f"the key in {file} must be {KEY_CHARS}; if the file is deleted, a new key is made"
        )
    return key or None


def make_key(folder: Path) -> str:
    """Makes and stores a new key of 256 random bits, safe in URLs and WebSocket subprotocols."""
    key = secrets.token_urlsafe(32)
    write_private(folder / KEY_FILE, key.encode() + b"\n")
    return key
