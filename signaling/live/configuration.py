"""Converts between GPT-Live's session object and the configuration of a session."""

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from msgspec import UNSET, UnsetType
from msgspec.structs import fields
from msgspec.structs import replace as with_fields

from core.conversation.events import FormatName
from core.conversation.ids import new_id
from core.conversation.items import MessageItem, TextPart
from core.errors import Conflict, RequestError
from core.ports import ToolSpec
from pipeline.shared.settings import DEFAULT, SessionSettings, TurnDetection, own_model
from signaling.live.schema import (
    AudioFormatObject,
    ClientDelegation,
    HistoryMessage,
    LiveSession,
    LiveSessionUpdate,
    PcmaAudio,
    PcmAudio,
    PcmuAudio,
    Reasoning,
    ResponsesBackend,
    ResponsesDelegation,
)
from signaling.realtime.client_secrets import ClientSecretConfiguration
from signaling.realtime.protocol.audio_format import PCM, WIDE_PCM, format_json, rate_of
from signaling.realtime.session.settings import SessionConfiguration, own_voice
from signaling.realtime.session.tools import choice_json, own_choice, read_client_tools, tools_json

T = TypeVar("T")

DELEGATE = ToolSpec(
    "delegate",
    "Hands the user's request to the application, which can do more than you can: look things up,"
    " use accounts, work for longer. Call it for what you cannot answer or do yourself. The result"
    " comes later.",
    {"type": "object", "properties": {}},
)
"Tool that the model calls to delegate, in a session with client delegation."

_DEFAULTS = SessionSettings()


@dataclass(frozen=True, slots=True)
class LiveConfiguration:
    """Configuration of one GPT-Live connection."""

    session: SessionConfiguration
    "Configuration in the terms of the session."
    model: str
    "Model as the client named it."
    instructions: str
    "Instructions for the conversation, without those for delegated tasks."
    voice: str
    "Voice as the client named it."
    backend: ResponsesBackend | None
    "Settings for delegated tasks; None: client delegation."
    history: tuple[MessageItem, ...] = ()
    "Messages with which the conversation begins."

    @property
    def target(self) -> Literal["client", "responses"]:
        """Side that works on delegated tasks: the client, or a model of the server."""
        return "client" if self.backend is None else "responses"


def configured(base: SessionConfiguration, sent: LiveSession) -> LiveConfiguration:
    """Returns the configuration of a new session. `base`: what the server, or the client secret,
    begins with. Raises RequestError."""
    if not base.settings.answers:
        raise RequestError(
            "The client secret was minted for transcription: it opens no GPT-Live session.",
            code="cannot_update_type",
        )
    audio = sent.audio
    voice = audio.output.voice if audio is not None and audio.output is not None else None
    format_ = _format_name(audio.format if audio is not None else None)
    settings = replace(
        base.settings,
        modality="audio",
        transcribes=True,
        turn_detection=base.settings.turn_detection or TurnDetection(),
        voice=base.settings.voice if voice is None else own_voice(voice),
    )
    backend = sent.delegation
    configuration = LiveConfiguration(
        replace(base, settings=settings, input_format=format_, output_format=format_),
        model=sent.model,
        instructions=sent.instructions or base.settings.instructions,
        voice=settings.voice if voice is None else voice if isinstance(voice, str) else voice.id,
        backend=_backend(backend) if isinstance(backend, ResponsesDelegation) else None,
        history=tuple(_message(message) for message in sent.input or ()),
    )
    return _applied(configuration)


def updated(configuration: LiveConfiguration, sent: LiveSessionUpdate) -> LiveConfiguration:
    """Returns the configuration after a `session.update`. Raises RequestError or Conflict."""
    delegation = sent.delegation
    if delegation is None:
        return configuration
    if isinstance(delegation, ClientDelegation) != (configuration.backend is None):
        raise Conflict(
            f"The delegation of this session is {configuration.target!r} and cannot change:"
            " start another session.",
            code="cannot_update_delegation",
            param="session.delegation.type",
        )
    if not isinstance(delegation, ResponsesDelegation) or delegation.responses is None:
        return configuration
    assert configuration.backend is not None
    changes = {
        field.name: value
        for field in fields(ResponsesBackend)
        if (value := getattr(delegation.responses, field.name)) is not UNSET
    }
    backend = with_fields(configuration.backend, **changes)
    return _applied(replace(configuration, backend=backend))


def session_json(
    configuration: LiveConfiguration, session_id: str, expires_at: int, *, has_format: bool
) -> dict[str, Any]:
    """Returns the session object with the values in effect. `has_format`: False over WebRTC, which
    negotiates its own format."""
    audio: dict[str, Any] = {"output": {"voice": configuration.voice}}
    if has_format:
        name = configuration.session.output_format
        audio["format"] = format_json(name) | {"rate": rate_of(name)}
    return {
        "id": session_id,
        "expires_at": expires_at,
        "model": configuration.model,
        "status": "active",
        "instructions": configuration.instructions,
        "audio": audio,
        "delegation": _delegation_json(configuration),
        "store": False,
    }


def _format_name(sent: AudioFormatObject | None) -> FormatName:
    match sent:
        case PcmAudio(rate=rate):
            return WIDE_PCM if rate == 16_000 else PCM
        case PcmuAudio():
            return "audio/pcmu"
        case PcmaAudio():
            return "audio/pcma"
        case None:
            return PCM


def _backend(sent: ResponsesDelegation) -> ResponsesBackend:
    if sent.responses is None or not isinstance(sent.responses.model, str):
        missing = "session.delegation.responses" + ("" if sent.responses is None else ".model")
        raise RequestError(
            f"Missing required parameter: '{missing}'.",
            code="missing_required_parameter",
            param=missing,
        )
    return sent.responses


def _applied(configuration: LiveConfiguration) -> LiveConfiguration:
    """Returns the configuration with its delegation in the session's settings."""
    session, backend = configuration.session, configuration.backend
    llm = own_model(configuration.model)
    settings = session.settings
    if backend is None:
        settings = replace(
            settings, instructions=configuration.instructions, client_tools=(DELEGATE,)
        )
    else:
        named = own_model(_sent(backend.model, DEFAULT))
        llm = llm if named == DEFAULT else named
        settings = _with_backend(settings, configuration.instructions, backend)
    if not isinstance(session, ClientSecretConfiguration):  # a secret's model stays
        settings = replace(settings, llm=llm)
    return replace(configuration, session=replace(session, settings=settings))


def _with_backend(
    settings: SessionSettings, instructions: str, backend: ResponsesBackend
) -> SessionSettings:
    """Applies the settings for delegated tasks. One model speaks and works, so it follows both
    instructions."""
    own = _sent(backend.instructions, "")
    tools = read_client_tools(backend.tools, "session.delegation.responses")
    return replace(
        settings,
        instructions="\n\n".join(text for text in (instructions, own) if text),
        client_tools=() if tools is None else tools.functions,
        mcp_servers=() if tools is None else tools.servers,
        tool_choice=own_choice(backend.tool_choice) or _DEFAULTS.tool_choice,
        parallel_tool_calls=_sent(backend.parallel_tool_calls, _DEFAULTS.parallel_tool_calls),
        max_output_tokens=_sent(backend.max_output_tokens, _DEFAULTS.max_output_tokens),
        reasoning_effort=_sent(backend.reasoning, Reasoning()).effort,
    )


def _sent(value: T | UnsetType | None, default: T) -> T:
    """Returns a value that the client sent, or the default for a missing one and for null."""
    return default if value is None or isinstance(value, UnsetType) else value


def _message(sent: HistoryMessage) -> MessageItem:
    role: Literal["system", "user", "assistant"] = (
        "system" if sent.role == "developer" else sent.role
    )
    return MessageItem(sent.id or new_id("item"), role, (TextPart(sent.content[0].text),))


def _delegation_json(configuration: LiveConfiguration) -> dict[str, Any]:
    """Returns the delegation as clients see it, without the secrets of MCP servers."""
    backend, settings = configuration.backend, configuration.session.settings
    if backend is None:
        return {"type": "client"}
    shown: dict[str, Any] = {
        "model": backend.model,
        "tools": tools_json(settings.client_tools, settings.mcp_servers),
        "tool_choice": choice_json(settings.tool_choice),
    }
    if own := _sent(backend.instructions, ""):
        shown["instructions"] = own
    if settings.max_output_tokens is not None:
        shown["max_output_tokens"] = settings.max_output_tokens
    if settings.parallel_tool_calls is not None:
        shown["parallel_tool_calls"] = settings.parallel_tool_calls
    if settings.reasoning_effort is not None:
        shown["reasoning"] = {"effort": settings.reasoning_effort}
    return {"type": "responses", "responses": shown}
