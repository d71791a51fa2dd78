"""Recognition parameters: Willow's names, mapped to Earshot's options."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from core.errors import RequestError
from devices.willow.wis.params import allowed_text, invalid, switch_of, text_of, whole_of
from engines.base import AsrInfo, AsrOptions, AsrTask
from pipeline.services import EngineSet
from pipeline.shared.settings import DEFAULT
from pipeline.transcription.options import MAX_BEAM_SIZE
from pipeline.transcription.recogniser import Recogniser
from pipeline.transcription.recording import Transcriber

SIZES = ("tiny", "base", "small", "medium", "large")
"Willow's names of model sizes; its own browser client always asks for `large`."

BEAMS = range(1, MAX_BEAM_SIZE + 1)
"Allowed values of `beam_size`."

TASKS: tuple[AsrTask, ...] = ("transcribe", "translate")
"Allowed values of `task`."

ENGLISH = "en"
"Language of translations: Whisper translates into no other."


@dataclass(frozen=True, slots=True)
class AsrParams:
    """Recognition that a request asks for."""

    model: str
    "Name of the engine in Earshot."
    options: AsrOptions
    translation: AsrOptions | None = None
    "Options of a second recognition that translates into English; None: no translation."
    returns_english: bool = False
    "True: the translation is only given for speech that is not English."
    note: str = field(default="", compare=False)
    "Remark for the log if the request could not be met exactly, e.g. another model is used."


class AsrParamsReader:
    """Reader of the parameters; checks them against the loaded engines."""

    def __init__(self, engines: EngineSet, transcriber: Transcriber) -> None:
        self._engines, self._transcriber = engines, transcriber

    def read(self, query: Mapping[str, object], default_language: str = "") -> AsrParams:
        """Reads the parameters of a request. Raises RequestError.

        They are `model`, `detect_language`, `force_language`, `beam_size`, `translate`, `task` and
        `return_language`. The errors are model_not_found, unsupported_language,
        unsupported_parameter and invalid_value.
        default_language: language if no parameter names one; empty: the server's.
        """
        model, note = self._model(text_of(query, "model"))
        info = self._engines.recogniser(model).info
        options = AsrOptions(
            language=self._language(query, info, default_language),
            beam_size=whole_of(query, "beam_size", BEAMS),
        )
        self._transcriber.check(model, options)
        if _task(query) == "translate":
            options = replace(options, task="translate")
            self._check_translation(model, info, options, "task=translate")
        translation = replace(options, task="translate")
        if switch_of(query, "translate"):
            self._check_translation(model, info, translation, "translate")
            return AsrParams(model, options, translation, note=note)
        if self._returns_english(query, info, options):
            self._check_translation(model, info, translation, "return_language")
            return AsrParams(model, options, translation, returns_english=True, note=note)
        return AsrParams(model, options, note=note)

    def recogniser(self, params: AsrParams) -> Recogniser:
        """Returns the recogniser that `params` names."""
        return self._engines.recogniser(params.model)

    def _model(self, name: str) -> tuple[str, str]:
        """Returns Earshot's name of the model, and a remark if another one is used."""
        recognisers = self._engines.asr
        if name.lower() in ("", DEFAULT):
            return DEFAULT, ""
        if recognisers.get(name):
            return name, ""
        size = name.lower()
        used = self._engines.recogniser(DEFAULT).info.model
        if size not in SIZES:
            if not self._engines.is_strict:
                return DEFAULT, f"the model that was asked for is not here; {used} is used"
            allowed = allowed_text(dict.fromkeys((*SIZES, *recognisers)))
            raise invalid("model", name, allowed, code="model_not_found")
        kinds = (size, f"{size}.en", f"{size}-v2", f"{size}-v3", f"{size}-v3-turbo")
        if found := next((kind for kind in kinds if recognisers.get(kind)), None):
            return found, ""
        return DEFAULT, f"no model of the size {size} is here; {used} is used"

    def _language(self, query: Mapping[str, object], info: AsrInfo, default: str) -> str | None:
        forced = text_of(query, "force_language").lower()
        if forced:
            if forced not in info.languages:
                allowed = allowed_text(info.languages)
                raise invalid("force_language", forced, allowed, code="unsupported_language")
            return forced
        if switch_of(query, "detect_language"):
            return None
        default = default or self._engines.default_language
        return default if default in info.languages else None

    def _returns_english(
        self, query: Mapping[str, object], info: AsrInfo, options: AsrOptions
    ) -> bool:
        """Returns True if `return_language` asks for a translation. Raises RequestError."""
        wanted = text_of(query, "return_language").lower()
        spoken = options.language or (info.languages[0] if len(info.languages) == 1 else None)
        if not wanted or wanted == spoken or options.task == "translate":
            if wanted not in ("", ENGLISH, spoken):
                raise _not_returned(wanted, None)
            return False
        if wanted != ENGLISH:
            raise _not_returned(wanted, spoken)
        return True

    def _check_translation(
        self, model: str, info: AsrInfo, options: AsrOptions, parameter: str
    ) -> None:
        if "task" not in info.supports:
            raise RequestError(
                f"the model {info.model} cannot translate; leave {parameter} out or name another"
                " one",
                code="unsupported_parameter",
                param=parameter.partition("=")[0],
            )
        self._transcriber.check(model, options)


def _task(query: Mapping[str, object]) -> AsrTask:
    """Reads `task`. Raises RequestError."""
    task = text_of(query, "task").lower() or "transcribe"
    for known in TASKS:
        if task == known:
            return known
    raise invalid("task", task, allowed_text(TASKS))


def _not_returned(wanted: str, spoken: str | None) -> RequestError:
    """Returns the error for a language that cannot be returned. spoken: the spoken language, if
    known."""
    allowed = allowed_text(dict.fromkeys(filter(None, (ENGLISH, spoken))))
    why = "nothing here translates into any other language than English"
    return invalid("return_language", wanted, f"{allowed}; {why}", code="unsupported_language")
