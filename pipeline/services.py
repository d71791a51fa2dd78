"""The engines that sessions may choose among, by name; `default` is what the server chose."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import NoReturn

from core.errors import NotFound, RequestError
from core.ports import Clock, Metrics, TraceSink
from engines.base import (
    AsrOptions,
    AsrPadding,
    EndOfTurnDetector,
    Llm,
    Tts,
    VadEngine,
    fallback_padding,
)
from engines.base.wake import WakeWordEngine, find_word
from pipeline.conversation.instructions import NO_DEFAULT, DefaultInstructions
from pipeline.shared.mcp_servers import ClientMcpPolicy
from pipeline.shared.settings import DEFAULT, SessionSettings, own_model
from pipeline.shared.trace import SessionTrace
from pipeline.speech.voices import choose_voice
from pipeline.tools.toolbox import Toolbox
from pipeline.transcription.no_speech import NoSpeechCriterion, NoSpeechMode, no_speech_criterion
from pipeline.transcription.options import check_asr_options
from pipeline.transcription.recogniser import (
    OnWastedWork,
    Recogniser,
    Recognisers,
    ignore_waste,
)
from serving.llm_slots import DraftBudget
from serving.placement.choose import unknown_model_message
from serving.scheduling.scheduler import DecodePriority

_WISHES = {
    "languages": "audio.input.transcription.languages",
    "prompt": "audio.input.transcription.prompt",
    "hotwords": "audio.input.transcription.keywords",
    "task": "earshot.transcription.task",
    "prefix": "earshot.transcription.prefix",
    "beam_size": "earshot.transcription.beam_size",
    "temperatures": "earshot.transcription.temperature",
    "no_speech_threshold": "earshot.transcription.no_speech_threshold",
}
"What a session calls the options of its recogniser."


@dataclass(frozen=True, slots=True)
class EngineSet:
    """Each holds `default` and every engine under its own name."""

    vad: VadEngine
    asr: Recognisers
    llm: Mapping[str, Llm]
    tts: Mapping[str, Tts]
    default_language: str = "en"
    is_strict: bool = True
    "A name that nobody has is an error; otherwise it means `default`."
    endpoint: EndOfTurnDetector | None = None
    wake: WakeWordEngine | None = None
    expected: Callable[[], Sequence[str]] = tuple
    "Names that every session's recogniser should expect: those of the house."
    wasted: OnWastedWork = ignore_waste
    no_speech: NoSpeechMode = "normal"
    "What is done about noise, where a request does not say it."

    def recognition(self, wished: AsrOptions) -> AsrOptions:
        """How an item is to be decoded, with what is configured for requests that do not say it."""
        if self.no_speech == "off" and wished.no_speech_threshold is None:
            return replace(wished, no_speech_threshold=1.0)
        return wished

    def judge(self, name: str, no_speech_threshold: float | None) -> NoSpeechCriterion:
        """Who says whether results of this recogniser are speech. `no_speech_threshold`: what the
        request asks for. Raises NotFound as `recogniser`."""
        return no_speech_criterion(self.no_speech, self.recogniser(name).info, no_speech_threshold)

    def padding_instead(self, name: str, wanted: AsrPadding | None) -> AsrPadding | None:
        """Which padding this recogniser uses in place of the one asked for; None: that one. Raises
        NotFound model_not_found."""
        return fallback_padding(self.recogniser(name, param="model").info, wanted)

    def meant(self, name: str) -> str:
        """What a name stands for that no engine has."""
        return own_model(name) if self.is_strict else DEFAULT

    def recogniser(
        self, name: str, *, param: str = "audio.input.transcription.model"
    ) -> Recogniser:
        """By name; what the hosted service calls its models is the default. `param`: the field
        that the name came in. Raises NotFound model_not_found."""
        found = self.asr.get(name) or self.asr.get(self.meant(name))
        return found or _missing(unknown_model_message(name, [DEFAULT, *self.recognisers()]), param)

    def recogniser_name(self, name: str) -> str:
        """What `/v1/models` calls the recogniser that a name means. Raises NotFound
        model_not_found."""
        meant = self.recogniser(name, param="model")
        own = (own for own, one in self.recognisers().items() if one is meant)
        return next(own, meant.info.model)

    def recognisers(self) -> Mapping[str, Recogniser]:
        """Every one by its own name."""
        found = {name: self.asr.get(name) for name in self.asr if name != DEFAULT}
        return {name: one for name, one in found.items() if one is not None}

    def hold(self, name: str) -> AbstractContextManager[None]:
        """While it is open, the recogniser stays in memory, and is loaded if it is not there."""
        return self.recogniser(name).hold()

    def admit(self, name: str, priority: DecodePriority) -> None:
        """Ask before work of many requests. Raises Overloaded when it would wait too long."""
        self.recogniser(name).admit(priority)

    def language_model(self, name: str) -> Llm:
        found = self.llm.get(name) or self.llm.get(self.meant(name))
        there = ", ".join(dict.fromkeys([DEFAULT, *self.llm]))
        return found or _missing(f"no model {name!r}; there are: {there}", "model")

    @property
    def voice(self) -> Tts:
        return self.tts[DEFAULT]

    def languages(self) -> tuple[str, ...]:
        """Every language that some engine hears, understands or speaks, sorted."""
        heard = {code for asr in self.recognisers().values() for code in asr.info.languages}
        understood = {code for llm in self.llm.values() for code in llm.languages}
        return tuple(sorted(heard | understood))

    def check(self, settings: SessionSettings) -> None:
        """Raises NotFound model_not_found; RequestError unsupported_language, voice_not_found, and
        for what the recogniser cannot do or a wake word that nobody knows."""
        info = self.recogniser(settings.asr).info
        # A session may write in a language that its recogniser does not hear.
        check_asr_options(info, replace(settings.recognition(info), language=None), _WISHES)
        find_word(self.wake, settings.wake_word)
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

    def check_hears(self, settings: SessionSettings) -> None:
        """Raises RequestError for a language that can only be written."""
        info = self.recogniser(settings.asr).info
        if settings.language is not None and settings.language not in info.languages:
            raise RequestError(
                f"{info.name} does not hear {settings.language!r}; it hears: "
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


# What all sessions of a server share.


@dataclass(frozen=True, slots=True)
class SessionServices:
    """Stateless model calls, tools, clock, metrics; nothing of any one session."""

    engines: EngineSet
    toolbox: Toolbox
    clock: Clock
    metrics: Metrics
    trace: TraceSink | None = None
    traces_words: bool = False
    traces_sound: bool = False
    "Also what was heard, for `earshot replay`; private, so off by itself."
    logs_words: bool = False
    "Whether the logger `transcripts` gets what was heard and said; private, so off by itself."
    drafts: DraftBudget = field(default_factory=DraftBudget)
    "Answers that are being made before their turn is over."
    instructions: DefaultInstructions = NO_DEFAULT
    "What language models are told where nobody else tells them anything."
    remote: ClientMcpPolicy = field(default_factory=ClientMcpPolicy)
    "Which MCP servers clients may name."

    def open_trace(self, session_id: str) -> SessionTrace | None:
        """The trace of a new session; None if no trace is written."""
        if self.trace is None:
            return None
        words, sound = self.traces_words, self.traces_sound
        return SessionTrace(self.trace, session_id, self.clock, words=words, sound=sound)
