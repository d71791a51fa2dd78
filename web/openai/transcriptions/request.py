"""Converts a form into options of the recogniser and the format of the answer."""

from dataclasses import dataclass, field

from core.errors import RequestError
from engines.base import AsrOptions, AsrPadding, AsrTask, TimestampLevel
from web.openai.transcriptions.fields import (
    CommonFields,
    Granularity,
    Included,
    ResponseFormat,
    TranscriptionFields,
    TranslationFields,
)
from web.openai.transcriptions.languages import NAMES, code_of
from web.openai.transcriptions.validation import parse_fields

LOGPROBS: Included = "logprobs"
SPEAKER: Included = "earshot.speaker"
"Value of `include[]` for the speaker of each segment and word."

NAMES_FIELD, REFERENCES_FIELD = "known_speaker_names[]", "known_speaker_references[]"

_WORD = "timestamp_granularities[]=word"


@dataclass(frozen=True, slots=True)
class KnownSpeaker:
    """A voice that the client names."""

    name: str
    reference: str = field(repr=False)
    "Recording of the voice as a data URL, as the client sent it."


@dataclass(frozen=True, slots=True)
class TranscriptionRequest:
    """One request in typed form."""

    model: str
    "Name of the model as the client sent it."
    options: AsrOptions
    response_format: ResponseFormat
    granularities: tuple[Granularity, ...] = ("segment",)
    "Levels whose times are in the answer with `verbose_json`."
    is_streamed: bool = False
    "True: the answer is sent as server-sent events."
    has_speakers: bool = False
    "True: the answer says who speaks."
    known_speakers: tuple[KnownSpeaker, ...] = ()
    "Voices that the client names."
    used_padding: AsrPadding | None = None
    """Padding that the model gets, if the requested padding does not suit the model. None: the
    requested padding is used."""

    @property
    def has_logprobs(self) -> bool:
        """True if the answer holds the log probability of each token."""
        return self.options.token_logprobs


def transcription(form: list[tuple[str, str]]) -> TranscriptionRequest:
    """Reads the form of a transcription. Raises RequestError with the field's name."""
    fields = parse_fields(form, TranscriptionFields)
    _check_formats(fields)
    is_diarized = fields.response_format == "diarized_json"
    has_speakers = is_diarized or SPEAKER in fields.include
    granularities = fields.timestamp_granularities or ("segment",)
    options = _options(
        fields,
        language=language_of(fields.language, "language") if fields.language else None,
        languages=tuple(language_of(language, "languages[]") for language in fields.languages),
        hotwords=", ".join(filter(None, (fields.hotwords, *fields.keywords))),
        task=fields.task,
        timestamps=_timestamps(fields.response_format, granularities),
        token_logprobs=LOGPROBS in fields.include,
    )
    return TranscriptionRequest(
        fields.model,
        options,
        fields.response_format,
        granularities,
        fields.stream,
        has_speakers,
        _known_speakers(fields) if has_speakers else (),
    )


def translation(form: list[tuple[str, str]]) -> TranscriptionRequest:
    """Reads the form of a translation. The source language is detected.

    Raises RequestError with the field's name.
    """
    fields = parse_fields(form, TranslationFields)
    options = _options(
        fields,
        hotwords=fields.hotwords,
        task="translate",
        timestamps=_timestamps(fields.response_format, ("segment",)),
    )
    return TranscriptionRequest(fields.model, options, fields.response_format)


def _options(
    fields: CommonFields,
    *,
    hotwords: str,
    task: AsrTask,
    timestamps: TimestampLevel,
    language: str | None = None,
    languages: tuple[str, ...] = (),
    token_logprobs: bool = False,
) -> AsrOptions:
    if fields.prefix and (language or languages or fields.prompt or hotwords):
        raise RequestError(
            "'prefix' replaces language, languages, prompt, hotwords and keywords: send it"
            " without them.",
            code="invalid_value",
            param="prefix",
        )
    return AsrOptions(
        language=language,
        languages=languages,
        task=task,
        prompt=fields.prompt,
        hotwords=hotwords,
        prefix=fields.prefix,
        beam_size=fields.beam_size,
        temperatures=(fields.temperature,) if fields.temperature else (),
        timestamps=timestamps,
        padding=fields.padding,
        no_speech_threshold=fields.no_speech_threshold,
        token_logprobs=token_logprobs,
    )


def _timestamps(
    response_format: ResponseFormat, granularities: tuple[Granularity, ...]
) -> TimestampLevel:
    match response_format:
        case "json" | "text":
            return "none"
        case "diarized_json":
            return "word"
        case "verbose_json" if "word" in granularities:
            return "word"
        case _:
            return "segment"


def language_of(text: str, param: str) -> str:
    """Returns the ISO 639-1 code of a language. Raises RequestError unsupported_language."""
    code = code_of(text)
    if code is None:
        raise RequestError(
            f"Invalid value for '{param}': {text[:64]!r}. Allowed: {', '.join(NAMES)}.",
            code="unsupported_language",
            param=param,
        )
    return code


def _known_speakers(fields: TranscriptionFields) -> tuple[KnownSpeaker, ...]:
    """Returns the voices that the client names. Raises RequestError if a name or a recording is
    missing, or a name comes twice."""
    names, references = fields.known_speaker_names, fields.known_speaker_references
    if len(names) != len(references):
        raise RequestError(
            f"'{NAMES_FIELD}' has {len(names)} values and '{REFERENCES_FIELD}' {len(references)}:"
            " each name needs a recording of the voice, and each recording a name.",
            code="invalid_value",
            param=NAMES_FIELD if len(names) > len(references) else REFERENCES_FIELD,
        )
    stripped = [name.strip() for name in names]
    if len({*stripped}) < len(stripped):
        raise RequestError(
            f"Invalid value for '{NAMES_FIELD}': a name comes twice. Allowed: different names.",
            code="invalid_value",
            param=NAMES_FIELD,
        )
    return tuple(map(KnownSpeaker, stripped, references))


def _check_formats(fields: TranscriptionFields) -> None:
    """Raises RequestError for fields that the response format does not allow.

    Clients send the granularity `segment` with any format. `verbose_json` has segments anyway, and
    other formats have no place for them, so it is accepted.
    """
    response_format = fields.response_format
    if response_format == "diarized_json":
        _check_diarized(fields)
    for is_sent, param, allowed in (
        ("word" in fields.timestamp_granularities, _WORD, ("verbose_json",)),
        (LOGPROBS in fields.include, f"include[]={LOGPROBS}", ("json",)),
        (SPEAKER in fields.include, f"include[]={SPEAKER}", ("verbose_json",)),
        (fields.stream, "stream", ("json", "text", "diarized_json")),
    ):
        if is_sent and response_format not in allowed:
            raise RequestError(
                f"'{param}' needs response_format {' or '.join(allowed)}, not {response_format}.",
                code="invalid_value",
                param=param.partition("=")[0],
            )


def _check_diarized(fields: TranscriptionFields) -> None:
    """Raises RequestError for fields that do not go with `diarized_json`. OpenAI's service refuses
    the same ones, and does not have the last two."""
    for is_sent, param in (
        (fields.prompt, "prompt"),
        (fields.include, "include[]"),
        (fields.timestamp_granularities, "timestamp_granularities[]"),
        (fields.prefix, "prefix"),
        (fields.task == "translate", "task"),
    ):
        if is_sent:
            raise RequestError(
                f"'{param}' is not supported with response_format diarized_json: leave it out.",
                code="unsupported_parameter",
                param=param,
            )
