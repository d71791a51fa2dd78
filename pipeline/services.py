"""Engines that sessions choose among by name, and the other services that sessions share. The name
`default` means the engine that the configuration chose."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import NoReturn

from core.conversation.events import SessionEvent
from core.errors import NotFound, RequestError
from core.ports import Clock, DeviceLocation, Metrics, TraceSink
from engines.base import (
    AsrOptions,
    AsrPadding,
    EndOfTurnDetector,
    Llm,
    Tts,
    VadEngine,
)
from engines.base.wake import WakeWordEngine, find_wake_word
from pipeline.conversation.instructions import NO_DEFAULT, DefaultInstructions
from pipeline.shared.mcp_servers import ClientMcpPolicy
from pipeline.shared.settings import DEFAULT, SessionSettings, own_model
from pipeline.shared.spoken_codes import NO_CODES, SpokenCodes
from pipeline.shared.trace import SessionTrace
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.speech.voices import choose_voice
from pipeline.tools.toolbox import Toolbox
from pipeline.transcription.no_speech import NoSpeechCriterion, NoSpeechMode, no_speech_criterion
from pipeline.transcription.options import check_asr_options, fallback_padding
from pipeline.transcription.recogniser import (
    OnWastedWork,
    Recogniser,
    Recognisers,
    ignore_waste,
)
from serving.asr.scheduling import DecodePriority
from serving.placement.choose import unknown_model_message
from serving.scheduling.llm_slots import DraftBudget
from serving.speaker.recognition import SpeakerRecognition

_OPTION_PARAMS = {
    "languages": "audio.input.transcription.languages",
    "prompt": "audio.input.transcription.prompt",
    "hotwords": "audio.input.transcription.keywords",
    "task": "earshot.transcription.task",
    "prefix": "earshot.transcription.prefix",
    "beam_size": "earshot.transcription.beam_size",
    "temperatures": "earshot.transcription.temperature",
    "no_speech_threshold": "earshot.transcription.no_speech_threshold",
}
"Field of the client's request for each option of the recogniser."


@dataclass(frozen=True, slots=True)
class EngineSet:
    """All engines of a server. Each kind holds `default` and every engine under its own name.

    Example:

        recogniser = engines.recogniser("default")
        llm = engines.language_model(settings.llm)
    """

    vad: VadEngine
    asr: Recognisers
    llm: Mapping[str, Llm]
    tts: Mapping[str, Tts]
    default_language: str = "en"
    "ISO 639-1; used where no language is known."
    is_strict: bool = True
    "True if an unknown name is an error; otherwise it means `default`."
    endpoint: EndOfTurnDetector | None = None
    "Judges by sound whether a turn is over; None: there is no such engine."
    wake: WakeWordEngine | None = None
    "Finds wake words; None: there is no such engine."
    expected_names: Callable[[], Sequence[str]] = tuple
    "Returns names that each session's recogniser should expect: those of the home."
    on_wasted: OnWastedWork = ignore_waste
    "Called with the seconds of decodes that were not needed."
    no_speech: NoSpeechMode = "normal"
    "No-speech filter for requests that do not set one."

    def recognition(self, requested: AsrOptions) -> AsrOptions:
        """Returns the options of a decode, completed with what is configured."""
        if self.no_speech == "off" and requested.no_speech_threshold is None:
            return replace(requested, no_speech_threshold=1.0)
        return requested

    def no_speech_criterion(
        self, name: str, no_speech_threshold: float | None
    ) -> NoSpeechCriterion:
        """Returns which scores decide whether results of this recogniser are speech.
        `no_speech_threshold`: from the request, 0 to 1. Raises NotFound as `recogniser` does."""
        return no_speech_criterion(self.no_speech, self.recogniser(name).info, no_speech_threshold)

    def fallback_padding(self, name: str, wanted: AsrPadding | None) -> AsrPadding | None:
        """Returns the padding that this recogniser uses in place of the one asked for; None: that
        one is used. Raises NotFound model_not_found."""
        return fallback_padding(self.recogniser(name, param="model").info, wanted)

    def resolved_name(self, name: str) -> str:
        """Returns the name of the engine that is used for a name which no engine has."""
        return own_model(name) if self.is_strict else DEFAULT

    def recogniser(
        self, name: str, *, param: str = "audio.input.transcription.model"
    ) -> Recogniser:
        """Returns a recogniser by name. A model name of OpenAI's service means the default.
        `param`: the request's field with the name. Raises NotFound model_not_found."""
        found = self.asr.get(name) or self.asr.get(self.resolved_name(name))
        return found or _missing(unknown_model_message(name, [DEFAULT, *self.recognisers()]), param)

    def recogniser_name(self, name: str) -> str:
        """Returns the name under which `/v1/models` lists the recogniser. Raises NotFound
        model_not_found."""
        meant = self.recogniser(name, param="model")
        own = (own for own, recogniser in self.recognisers().items() if recogniser is meant)
        return next(own, meant.info.model)

    def recognisers(self) -> Mapping[str, Recogniser]:
        """Returns all recognisers by their own names."""
        found = {name: self.asr.get(name) for name in self.asr if name != DEFAULT}
        return {name: engine for name, engine in found.items() if engine is not None}

    def hold(self, name: str) -> AbstractContextManager[None]:
        """Keeps the recogniser in memory while the context is open; loads it if needed."""
        return self.recogniser(name).hold()

    def admit(self, name: str, priority: DecodePriority) -> None:
        """Checks before work of many requests whether there is room. Raises OverloadedError when
        the wait would be too long."""
        self.recogniser(name).admit(priority)

    def language_model(self, name: str) -> Llm:
        """Returns a language model by name. Raises NotFound model_not_found."""
        found = self.llm.get(name) or self.llm.get(self.resolved_name(name))
        known = ", ".join(dict.fromkeys([DEFAULT, *self.llm]))
        return found or _missing(f"no model {name!r}; there are: {known}", "model")

    @property
    def voice(self) -> Tts:
        """The default voice engine."""
        return self.tts[DEFAULT]

    def languages(self) -> tuple[str, ...]:
        """Returns every language that a recogniser or a language model knows, sorted."""
        codes = {code for asr in self.recognisers().values() for code in asr.info.languages}
        understood = {code for llm in self.llm.values() for code in llm.languages}
        return tuple(sorted(codes | understood))

    def check(self, settings: SessionSettings) -> None:
        """Checks the settings. Raises NotFound model_not_found; RequestError unsupported_language,
        voice_not_found, and for an option that the recogniser cannot do or an unknown wake word."""
        info = self.recogniser(settings.asr).info
        # A session may use a language in writing that its recogniser does not know.
        check_asr_options(info, replace(settings.recognition(info), language=None), _OPTION_PARAMS)
        find_wake_word(self.wake, settings.wake_word)
        if settings.answers:
            self.language_model(settings.llm)
        if settings.language is not None and settings.language not in self.languages():
            raise RequestError(
                f"language {settings.language!r} is not supported; these are: "
                + ", ".join(self.languages()),
                code="unsupported_language",
                param="audio.input.transcription.language",
            )
        if settings.answers and settings.modality == "audio":
            self._check_voice(settings.voice, settings.language or self.default_language)

    def check_spoken_language(self, settings: SessionSettings) -> None:
        """Checks that the recogniser knows the language. Raises RequestError unsupported_language
        for one that can only be written."""
        info = self.recogniser(settings.asr).info
        if settings.language is not None and settings.language not in info.languages:
            raise RequestError(
                f"{info.name} does not recognise {settings.language!r}; allowed: "
                + ", ".join(info.languages),
                code="unsupported_language",
                param="audio.input.transcription.language",
            )

    def _check_voice(self, voice: str, language: str) -> None:
        try:
            choose_voice(self.tts, language, voice)
        except RequestError as exc:
            if exc.code == "voice_not_found":  # a language without a voice can still be written
                raise RequestError(str(exc), code=exc.code, param="audio.output.voice") from exc


def _missing(message: str, param: str) -> NoReturn:
    raise NotFound(message, code="model_not_found", param=param)


# Services that all sessions of a server share.

ApplyProfile = Callable[[str, SessionSettings], SessionSettings]
"Function from the id of a person and settings to the settings of answers to this person."


EventListener = Callable[[DeviceLocation, SessionEvent], None]
"""Function that receives an event of a session, and where the session is. It must return at
once."""


def _without_profile(_: str, settings: SessionSettings) -> SessionSettings:
    return settings


@dataclass(frozen=True, slots=True)
class SessionServices:
    """Engines, tools, clock and metrics, shared by all sessions. Holds no state of a session."""

    engines: EngineSet
    toolbox: Toolbox
    clock: Clock
    metrics: Metrics
    trace: TraceSink | None = None
    traces_words: bool = False
    "True if traces hold words; private, so off by default."
    traces_sound: bool = False
    "True if traces hold the microphone's audio, for `earshot replay`; private, so off by default."
    logs_words: bool = False
    "True if the logger `transcripts` gets transcripts and answers; private, so off by default."
    drafts: DraftBudget = field(default_factory=DraftBudget)
    "Slots for responses that are begun before their turn is over."
    instructions: DefaultInstructions = NO_DEFAULT
    "Instructions for language models where neither client nor operator gives any."
    speakers: SpeakerRecognition | None = None
    "Recognises people by their voices; None: no model can."
    languages: TextLanguageDetector | None = None
    "Finds sentences of an answer in another language; None: they are not looked for."
    codes: SpokenCodes = NO_CODES
    "Codes of guards, which are taken out of transcripts."
    apply_profile: ApplyProfile = _without_profile
    "Gives answers the settings of the person who asks."
    mcp_policy: ClientMcpPolicy = field(default_factory=ClientMcpPolicy)
    "Limits on the MCP servers that clients may name."

    listener: EventListener | None = None
    """Receives the events of the owner's sessions and of devices. Sessions of a named key belong to
    a person, and their events go to nobody else."""

    def open_trace(self, session_id: str) -> SessionTrace | None:
        """Returns the trace of a new session; None if no trace is written."""
        if self.trace is None:
            return None
        words, sound = self.traces_words, self.traces_sound
        return SessionTrace(self.trace, session_id, self.clock, words=words, sound=sound)
