"""The engines that sessions may choose among, by name; `default` is what the server chose."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from core.errors import RequestError
from engines.base import AsrInfo, AsrItem, AsrResult, Llm, Tts, VadEngine
from pipeline.settings import DEFAULT, SessionSettings
from serving.scheduler import Priority

T = TypeVar("T")


class Recogniser(Protocol):
    """Speech recognition as sessions see it: one shared model behind a scheduler."""

    @property
    def info(self) -> AsrInfo: ...

    async def decode(self, item: AsrItem, priority: Priority) -> AsrResult: ...

    def forget(self, utterance: str) -> None: ...


@dataclass(frozen=True, slots=True)
class EngineSet:
    """Each mapping holds `default` and every loaded engine under its own name."""

    vad: VadEngine
    asr: Mapping[str, Recogniser]
    llm: Mapping[str, Llm]
    tts: Mapping[str, Tts]
    default_language: str = "en"

    def recogniser(self, name: str) -> Recogniser:
        return _pick(self.asr, name, "audio.input.transcription.model")

    def language_model(self, name: str) -> Llm:
        return _pick(self.llm, name, "model")

    @property
    def voice(self) -> Tts:
        return self.tts[DEFAULT]

    def languages(self) -> tuple[str, ...]:
        """Every language that some engine hears, understands or speaks, sorted."""
        heard = {code for asr in self.asr.values() for code in asr.info.languages}
        understood = {code for llm in self.llm.values() for code in llm.languages}
        return tuple(sorted(heard | understood))

    def check(self, settings: SessionSettings) -> None:
        """Raises RequestError model_not_found, unsupported_language, voice_not_found."""
        self.recogniser(settings.asr)
        if settings.answers:
            self.language_model(settings.llm)
        if settings.language is not None and settings.language not in self.languages():
            raise RequestError(
                f"language {settings.language!r} is not supported; these are: "
                + ", ".join(self.languages()),
                code="unsupported_language",
                param="audio.input.transcription.language",
            )
        if settings.answers and settings.modality == "audio" and settings.voice != DEFAULT:
            voices = [v for names in self.voice.info.voices.values() for v in names]
            if settings.voice not in voices:
                raise RequestError(
                    f"no voice {settings.voice!r}; there are: {DEFAULT}, " + ", ".join(voices),
                    code="voice_not_found",
                    param="audio.output.voice",
                )


def _pick(engines: Mapping[str, T], name: str, param: str) -> T:
    found = engines.get(name)
    if found is None:
        raise RequestError(
            f"no model {name!r}; there are: {', '.join(engines)}",
            code="model_not_found",
            param=param,
        )
    return found
