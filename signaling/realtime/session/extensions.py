"""Settings of responses, most of them without a field in OpenAI's service: parsing and
display."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from msgspec import UnsetType

from pipeline.shared.settings import AS_FITS, ContextTruncation, ReasoningEffort, SessionSettings
from signaling.realtime.protocol.structs import OptionalField, sent_object, updated_value
from signaling.realtime.session.schema import (
    RealtimeSession,
    ReasoningConfiguration,
    RetentionRatioTruncation,
    SessionExtension,
)

_DEFAULTS = SessionSettings()
"Settings of a session whose client sent none. A null from a client resets a field to them."

NAMES: Mapping[str, str] = {
    "barge_in": "barge_in",
    "echo": "echo",
    "wake_word": "wake_word",
    "area": "area",
    "temperature": "answer_temperature",
    "tools": "tools",
}
"Name in the client's field `earshot` -> name of the session's setting."

UNLIMITED = "inf"
"Value of `max_output_tokens` for no limit."


def with_extension(settings: SessionSettings, sent: SessionExtension) -> SessionSettings:
    """Applies the client's field `earshot`."""
    tools = updated_value(sent.tools, settings.tools, _DEFAULTS.tools)
    return replace(
        settings,
        barge_in=updated_value(sent.barge_in, settings.barge_in, _DEFAULTS.barge_in),
        echo=updated_value(sent.echo, settings.echo, _DEFAULTS.echo),
        wake_word=updated_value(sent.wake_word, settings.wake_word, _DEFAULTS.wake_word),
        area=updated_value(sent.area, settings.area, _DEFAULTS.area).strip(),
        answer_temperature=updated_value(
            sent.temperature, settings.answer_temperature, _DEFAULTS.answer_temperature
        ),
        tools=None if tools is None else tuple(tools),
    )


def output_limit(settings: SessionSettings, sent: RealtimeSession) -> int | None:
    """Returns the largest number of tokens of one response; None: no limit."""
    limit = sent.max_output_tokens
    if isinstance(limit, UnsetType):
        return settings.max_output_tokens
    return limit if isinstance(limit, int) else None


def effort_of(
    sent: OptionalField[ReasoningConfiguration], now: ReasoningEffort | None = None
) -> ReasoningEffort | None:
    """Returns the requested reasoning effort; None: the model decides."""
    if isinstance(sent, UnsetType):
        return now
    return None if sent is None else updated_value(sent.effort, now, None)


def with_truncation(
    now: ContextTruncation,
    sent: OptionalField[Literal["auto", "disabled"] | RetentionRatioTruncation],
) -> ContextTruncation:
    """Applies the client's rule for a conversation that exceeds the context window; null resets
    it."""
    match sent:
        case UnsetType():
            return now
        case "disabled":
            return ContextTruncation(is_allowed=False)
        case RetentionRatioTruncation(retention_ratio=ratio):
            limits = sent_object(sent.token_limits)
            max_tokens = sent_object(limits.post_instructions) if limits else None
            return ContextTruncation(retention=ratio, max_tokens=max_tokens)
        case _:
            return AS_FITS


def truncation_json(truncation: ContextTruncation) -> str | dict[str, object]:
    """Returns the truncation as clients see it."""
    if not truncation.is_allowed:
        return "disabled"
    if truncation == AS_FITS:
        return "auto"
    shown: dict[str, object] = {"type": "retention_ratio", "retention_ratio": truncation.retention}
    if truncation.max_tokens is not None:
        shown["token_limits"] = {"post_instructions": truncation.max_tokens}
    return shown


def model_json(settings: SessionSettings) -> dict[str, object]:
    """Returns the requests to the model that differ from its own defaults."""
    shown: dict[str, object] = {}
    if settings.parallel_tool_calls is not None:
        shown["parallel_tool_calls"] = settings.parallel_tool_calls
    if settings.reasoning_effort is not None:
        shown["reasoning"] = {"effort": settings.reasoning_effort}
    return shown


def extension_json(settings: SessionSettings) -> dict[str, object]:
    """Returns the settings in `earshot` that differ from a fresh session's."""
    shown: dict[str, object] = {}
    for name, setting in NAMES.items():
        value = getattr(settings, setting)
        if value != getattr(_DEFAULTS, setting):
            shown[name] = list(value) if isinstance(value, tuple) else value
    return shown
