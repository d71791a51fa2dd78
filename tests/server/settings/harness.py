"""A settings file, and a server that only writes down what it is asked."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from core.errors import ConfigError
from server.config import Config
from server.settings.file import SettingsFile
from server.settings.schema import SettingOption
from server.settings.service import SettingsService

VOICES = ("default", "heart", "en-gb")


@dataclass
class Host:
    """Implements `SettingsHost`."""

    applied: list[Config] = field(default_factory=list)

    def choices(self) -> Mapping[str, Sequence[SettingOption]]:
        return {
            "assistant.voice": [SettingOption(one, one) for one in VOICES],
            "llm.engine": [SettingOption(one, one) for one in ("auto", "hybrid", "openai")],
            "tts.engine": [SettingOption(one, one) for one in ("auto", "espeak")],
        }

    def check(self, config: Config) -> None:
        if config.assistant.voice not in VOICES:
            raise ConfigError(f"assistant.voice: no voice {config.assistant.voice!r}")

    def apply(self, config: Config) -> None:
        self.applied.append(config)


def service(
    folder: Path,
    text: str | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    host: Host | None = None,
) -> SettingsService:
    """Returns the settings of a server that was started with this file; None: without one."""
    path = folder / "earshot.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    file = SettingsFile.of(environ or {}, path, flags or {})
    running = file.load(file.read()[0]).config
    return SettingsService(file, running, host or Host())
