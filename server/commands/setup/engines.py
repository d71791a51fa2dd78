"""Engines of this installation, for the choices of `earshot setup` while no server runs."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial

from core.errors import EarshotError
from engines.base import Tts
from engines.base.wake import WakeWordEngine
from engines.registry import load
from server.commands.doctor_probes import available_voices
from server.compose.choices import choose_one, survey
from server.compose.llm_and_tts import FALLBACK_TTS, check_voice, check_wake_word
from server.config import Config
from server.settings.schema import SettingOption


class InstalledEngines:
    """Implements `SettingsHost`. Engines are loaded when a question needs them."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def choices(self) -> Mapping[str, Sequence[SettingOption]]:
        return {}  # the owner of the machine may write anything that loads

    def check(self, config: Config) -> None:
        check_voice(config.assistant.voice, self.voices, config.language)
        if config.assistant.wake_word:
            check_wake_word(config.assistant.wake_word, self.wake)

    def apply(self, config: Config) -> None:
        """Does nothing: no server runs here."""

    @cached_property
    def voices(self) -> Mapping[str, Tts]:
        """Voice engines of the configuration, as the server would load them."""
        chosen: dict[str, Tts] = {}
        found = survey(self._config.paths.models_dir, ("tts",))
        choice = choose_one(self._config, "tts", found)
        with suppress(EarshotError):  # the server then speaks with the fallback
            chosen[choice.name] = load("tts", choice.name, choice.options)
        return available_voices(chosen, partial(load, "tts", FALLBACK_TTS, {}))

    @cached_property
    def wake(self) -> WakeWordEngine:
        """Wake word engine. Raises EngineMissing or ConfigError."""
        choice = choose_one(self._config, "wake", survey(self._config.paths.models_dir, ("wake",)))
        return load("wake", choice.name, choice.options)
