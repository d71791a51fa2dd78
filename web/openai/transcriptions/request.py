"""Converts a form into options of the recogniser and the format of the answer."""

from dataclasses import dataclass

from core.errors import RequestError
from engines.base import AsrOptions, AsrPadding, AsrTask, TimestampLevel
from web.openai.transcriptions.fields import (
    CommonFields,
    Granularity,
    ResponseFormat,
    TranscriptionFields,
    TranslationFields,
)
from web.openai.transcriptions.languages import NAMES, code_of
from web.openai.transcriptions.validation import parse_fields

_WORD = "timestamp_granularities[]=word"


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
    used_padding: AsrPadding | None = None
    """Padding that the model gets, if the requested padding does not suit the model. None: the
    requested padding is used."""

    @property
    def has_logprobs(self) -> bool:
        """True if the answer holds the log probability of each token."""
        return self.options.token_logprobs


def transcription(form: list[tuple[str, str]]) -> TranscriptionRequest:
    """Reads the form of a transcription. Raises RequestError with the field's name."""
    _refuse_diarization(form)
    fields = parse_fields(form, TranscriptionFields)
    _check_formats(fields)
    granularities = fields.timestamp_granularities or ("segment",)
    options = _options(
        fields,
        language=language_of(fields.language, "language") if fields.language else None,
        languages=tuple(language_of(language, "languages[]") for language in fields.languages),
        hotwords=", ".join(filter(None, (fields.hotwords, *fields.keywords))),
        task=fields.task,
        timestamps=_timestamps(fields.response_format, granularities),
        token_logprobs=bool(fields.include),
    )
    return TranscriptionRequest(
        fields.model, options, fields.response_format, granularities, fields.stream
    )


def translation(form: list[tuple[str, str]]) -> TranscriptionRequest:
    """Reads the form of a translation. The source language is detected.

    Raises RequestError with the field's name.
    """
    _refuse_diarization(form)
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


def _refuse_diarization(form: list[tuple[str, str]]) -> None:
    """Raises RequestError if the form asks for speakers, with a better reason than an unknown
    value."""
    if ("response_format", "diarized_json") in form:
        raise RequestError(
            "No engine here distinguishes speakers: 'response_format' may be json, text, srt,"
            " verbose_json, vtt.",
            code="unsupported_parameter",
            param="response_format",
        )


def _check_formats(fields: TranscriptionFields) -> None:
    """Raises RequestError for fields that the response format does not allow.

    Clients send the granularity `segment` with any format. `verbose_json` has segments anyway, and
    other formats have no place for them, so it is accepted.
    """
    response_format = fields.response_format
    for is_sent, param, allowed in (
        ("word" in fields.timestamp_granularities, _WORD, ("verbose_json",)),
        (fields.include, "include[]", ("json",)),
        (fields.stream, "stream", ("json", "text")),
    ):
        if is_sent and response_format not in allowed:
            raise RequestError(
                f"'{param}' needs response_format {' or '.join(allowed)}, not {response_format}.",
                code="invalid_value",
                param=param.partition("=")[0],
            )
