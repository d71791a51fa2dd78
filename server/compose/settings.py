"""Connects the settings of the page with the running server."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from core.access.named_key import CALLER_KEY
from core.errors import EarshotError
from devices.registry.named_keys import NamedKeys
from engines.registry import worker_profile
from pipeline.shared.prompts import PromptLibrary
from pipeline.shared.settings import DEFAULT, InitialSettings, SessionSettings
from server.compose.engines import Engines
from server.compose.llm_and_tts import check_voice, check_wake_word
from server.config import Config
from server.settings.schema import SettingOption
from web.openai.speech.voice_cards import voice_list

LANGUAGE_MODELS = ("auto", "intents", "hybrid", "openai")
"""Language models that the page may choose. The others start programs, or read files that their
options name."""

HTTP_MODEL = "openai"
"Engine behind `hybrid` that the page may choose, for the same reason."


class SessionDefaults:
    """The settings with which sessions begin, as `InitialSettings`. They change when the operator
    saves others."""

    def __init__(self, config: Config) -> None:
        self._prompts = PromptLibrary(
            {name: prompt.as_stored() for name, prompt in config.prompts.items()}
        )
        self.use(config)

    def __call__(self) -> SessionSettings:
        return self._settings

    def use(self, config: Config) -> None:
        """Lets sessions begin with the settings of this configuration from now on."""
        settings = config.assistant.settings(config.turn.as_turn_detection())
        self._settings = replace(settings, prompts=self._prompts)


class CallerDefaults:
    """The settings with which a session of the caller begins, as `InitialSettings`: the server's,
    changed by the profile of the named key."""

    def __init__(self, defaults: InitialSettings, keys: NamedKeys) -> None:
        self._defaults, self._keys = defaults, keys

    def __call__(self) -> SessionSettings:
        key, settings = CALLER_KEY.get(), self._defaults()
        return settings if key is None else self._keys.profile_of(key).apply_to(settings)


class RunningEngines:
    """The running server as a `SettingsHost`: allowed values, checks, settings of new sessions."""

    def __init__(self, engines: Engines, defaults: SessionDefaults, language: str) -> None:
        self._engines, self._defaults, self._language = engines, defaults, language

    def choices(self) -> Mapping[str, Sequence[SettingOption]]:
        engines = self._engines
        report = engines.report(self._language)
        voices = voice_list(engines.tts, self._language).voices
        return {
            "language": [
                SettingOption(language, language) for language in self._languages(report.languages)
            ],
            "assistant.voice": [
                SettingOption(
                    voice.id,
                    voice.id
                    if voice.id == DEFAULT
                    else f"{voice.language}: {voice.name} ({voice.engine})",
                )
                for voice in voices
            ],
            "assistant.wake_word": [
                SettingOption("", "-"),
                *(SettingOption(word.name, word.phrase) for word in report.wake_words),
            ],
            "asr.model": [
                SettingOption("auto", "auto"),
                *(
                    SettingOption(model.name, model.name)
                    for model in report.asr.available
                    if model.installed
                ),
            ],
            "llm.engine": [SettingOption(name, name) for name in LANGUAGE_MODELS],
            "llm.options.model.engine": [SettingOption(HTTP_MODEL, HTTP_MODEL)],
            "tts.engine": [
                SettingOption("auto", "auto"),
                *(
                    SettingOption(engine.name, engine.name)
                    for engine in report.tts.available
                    if engine.installed and not engine.reason and _needs_no_options(engine.name)
                ),
            ],
        }

    def _languages(self, conversation: Sequence[str]) -> Sequence[str]:
        """Lists the languages of conversations now, then those with a voice: another recogniser may
        be chosen in the same change."""
        spoken = {code for tts in self._engines.tts.values() for code in tts.info.voices}
        return list(dict.fromkeys([*conversation, *sorted(spoken)]))

    def check(self, config: Config) -> None:
        check_voice(config.assistant.voice, self._engines.tts, config.language)
        check_wake_word(config.assistant.wake_word, self._engines.wake)

    def apply(self, config: Config) -> None:
        self._defaults.use(config)


def _needs_no_options(voice_engine: str) -> bool:
    """Returns False for an engine that does not load without options, which the page cannot
    give."""
    try:
        worker_profile("tts", voice_engine, {})
    except EarshotError:
        return False
    return True
