"""Checks the options of a recognition request: ranges, and what the recogniser can do."""

from collections.abc import Iterable, Mapping

from core.errors import RequestError
from engines.asr.whisper.prompt import check_prefix
from engines.base import AsrInfo, AsrOptions, AsrPadding

MAX_PROMPT_CHARS = 4000
"Longest prompt. Whisper reads the last 223 tokens of a prompt, at most some 1500 characters."
MAX_BEAM_SIZE = 10
"Widest beam search. The cost grows with it; the accuracy hardly grows beyond 5."
MAX_TEMPERATURES = 6
"Most temperatures: 0 to 1 in steps of 0.2, the usual fallback sequence."

_NO_NAMES: Mapping[str, str] = {}


def check_asr_options(
    info: AsrInfo, options: AsrOptions, names: Mapping[str, str] = _NO_NAMES
) -> None:
    """Checks the options. Raises RequestError invalid_value, unsupported_language,
    unsupported_parameter.

    Refuses options that would change the result if they were ignored, but not hints that the model
    has no use for (prompt, hotwords, beam size, temperatures, padding). The error's `param` is the
    option's own name (`temperature` for the temperatures), or its name in `names`.
    """
    params = {"temperatures": "temperature", **names}
    _check_ranges(options, params)
    if not options.prefix:  # the prefix names the language itself
        _check_languages(info, options, params)
    refused = {
        "task": options.task == "translate",
        "prefix": options.prefix != "",
        "timestamps": options.timestamps == "word",
        "token_logprobs": options.token_logprobs,
    }
    for field, is_asked in refused.items():
        if is_asked and field not in info.supports:
            param = params.get(field, field)
            able = ", ".join(info.supports) or "none of the options"
            raise RequestError(
                f"'{param}': {info.name} (model {info.model}) cannot do "
                f"{getattr(options, field)!r}; it supports: {able}",
                code="unsupported_parameter",
                param=param,
            )
    if options.prefix:
        check_prefix(options.prefix, info, params.get("prefix", "prefix"))


def fallback_padding(info: AsrInfo, requested: AsrPadding | None) -> AsrPadding | None:
    """Returns the padding that replaces `requested` if the weights were not trained for it; None if
    `requested` can be used as it is."""
    is_supported = requested is None or not info.paddings or requested in info.paddings
    return None if is_supported else "longest"


def _check_ranges(options: AsrOptions, params: Mapping[str, str]) -> None:
    """Raises RequestError invalid_value for a value outside its range."""

    def within(field: str, values: Iterable[float], low: float, high: float) -> None:
        for value in values:
            if not low <= value <= high:  # this form also refuses NaN
                raise _invalid(params.get(field, field), f"{low} to {high}", value)

    if options.beam_size is not None:
        within("beam_size", [options.beam_size], 1, MAX_BEAM_SIZE)
    within("temperatures", options.temperatures, 0, 1)
    if len(options.temperatures) > MAX_TEMPERATURES:
        allowed = f"at most {MAX_TEMPERATURES} values from 0 to 1"
        raise _invalid(params["temperatures"], allowed, options.temperatures)
    if options.no_speech_threshold is not None:
        within("no_speech_threshold", [options.no_speech_threshold], 0, 1)
    for field in ("prompt", "hotwords", "prefix"):
        length = len(getattr(options, field))
        if length > MAX_PROMPT_CHARS:
            allowed = f"at most {MAX_PROMPT_CHARS} characters"
            raise _invalid(params.get(field, field), allowed, f"{length} characters")


def _check_languages(info: AsrInfo, options: AsrOptions, params: Mapping[str, str]) -> None:
    requested = [("language", options.language)] if options.language is not None else []
    requested += [("languages", code) for code in options.languages]
    for field, code in requested:
        if code not in info.languages:
            raise RequestError(
                f"{info.name} does not recognise {code!r}; allowed: {', '.join(info.languages)}",
                code="unsupported_language",
                param=params.get(field, field),
            )


def _invalid(param: str, allowed: str, got: object) -> RequestError:
    return RequestError(
        f"Invalid value for '{param}': {got}. Allowed: {allowed}.",
        code="invalid_value",
        param=param,
    )
