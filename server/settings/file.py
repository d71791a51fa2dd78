"""The settings file of a server: read, checked and replaced as a whole."""

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from core.errors import ConfigError
from server.config.load import DEFAULT_FILE, EffectiveConfig, find_file, load
from server.runtime.state_dir import write_private

MAX_FILE_BYTES = 1_000_000
"Largest settings file that is edited. Ours has some kilobytes; stored prompts may add hundreds."

NO_FILE = "none"
"Version of a settings file that does not exist yet."


@dataclass(frozen=True, slots=True)
class SettingsFile:
    """The file that a server reads its settings from, and what overrides it."""

    environ: Mapping[str, str]
    file: Path
    "Absolute path; need not exist."
    flags: Mapping[str, str]

    @classmethod
    def of(
        cls, environ: Mapping[str, str], file: Path | None, flags: Mapping[str, str]
    ) -> "SettingsFile":
        """Returns the file that `load` reads with these arguments, or the one that a first save
        makes."""
        path = find_file(environ, file) or Path(DEFAULT_FILE)
        return cls(environ, path.absolute(), flags)

    def read(self) -> tuple[str, str]:
        """Returns the text and its version. Raises ConfigError."""
        try:
            data = self.file.read_bytes()
        except FileNotFoundError:
            return "", NO_FILE
        except OSError as error:
            raise ConfigError(f"{self.file}: {error.strerror or error}") from error
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(f"{self.file}: larger than {MAX_FILE_BYTES} bytes")
        try:
            return data.decode(), sha256(data).hexdigest()[:32]
        except UnicodeDecodeError as error:
            raise ConfigError(f"{self.file}: not UTF-8: {error}") from error

    def load(self, text: str) -> EffectiveConfig:
        """Reads all settings with this text as the file's. Raises ConfigError."""
        return load(self.environ, file=self.file, flags=self.flags, text=text)

    def write(self, text: str) -> None:
        """Replaces the file, whole or not at all. Links are followed, its rights stay; a new one is
        readable by its owner only. Raises ConfigError."""
        target = self.file.resolve()
        mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else 0o600
        write_private(target, text.encode(), mode)

    def why_read_only(self) -> str:
        """Returns why the file cannot be written; empty if it can. Only its folder counts, because
        a new file takes the place of the old one."""
        folder = self.file.resolve().parent
        if os.access(folder, os.W_OK | os.X_OK):
            return ""
        return f"the server may not write in {folder}"
