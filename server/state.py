"""Files that only their owner may read: the API key, the certificate."""

import os
import secrets
from pathlib import Path

from core.errors import ConfigError

KEY_FILE = "api-key"


def open_folder(path: str) -> Path:
    """The state folder, made at need. Raises ConfigError when it cannot be."""
    folder = Path(path).expanduser()
    try:
        # A folder that was there before keeps its mode: it may be anything. Our files are 0600.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"config.paths.state_dir: {folder}: {error.strerror or error}") from error
    return folder


def write_private(file: Path, data: bytes) -> None:
    """Write whole or not at all, readable by the owner only."""
    partial = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as out:
            out.write(data)
        partial.replace(file)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ConfigError(f"cannot write {file}: {error.strerror or error}") from error


def read_key(path: str) -> str | None:
    """The key that an earlier start made, if any."""
    file = Path(path).expanduser() / KEY_FILE
    try:
        return file.read_text(encoding="ascii").strip() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the key in {file}: {error}") from error


def make_key(folder: Path) -> str:
    """A new key, stored. 256 random bits, with no character that a URL or a subprotocol minds."""
    key = secrets.token_urlsafe(32)
    write_private(folder / KEY_FILE, key.encode() + b"\n")
    return key
