"""Converts between the session object and our settings."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from msgspec import UnsetType

from core.conversation.events import FormatName
from core.errors import Conflict
from pipeline.session.sessions import ClientSecretHolder
from pipeline.shared.prompts import PromptSelection
from pipeline.shared.settings import DEFAULT, SessionSettings, own_model
from signaling.realtime.protocol.audio_format import PCM, format_json, name_of, says_rate
from signaling.realtime.protocol.structs import OptionalField, sent_object, updated_value
from signaling.realtime.session.audio_input import (
    decoding_json,
    noise_reduction_json,
    transcription_json,
    turn_detection_json,
    with_decoding,
    with_noise_reduction,
    with_transcription,
    with_turn_detection,
)
from signaling.realtime.session.extensions import (
    UNLIMITED,
    effort_of,
    extension_json,
    model_json,
    output_limit,
    truncation_json,
    with_extension,
    with_truncation,
)
from signaling.realtime.session.prompt import instructions_of, prompt_json, prompt_use
from signaling.realtime.session.schema import (
    LOGPROBS,
    AudioInput,
    AudioOutput,
    InputTranscription,
    RealtimeSession,
    SessionAudio,
    SessionObject,
    TranscriptionAudio,
    VoiceId,
)
from signaling.realtime.session.tools import choice_json, own_choice, read_client_tools, tools_json

OPENAI_VOICES = frozenset(
    ("alloy", "ash", "ballad", "cedar", "coral", "echo", "marin", "sage", "shimmer", "verse")
)
"""Voices of OpenAI's service. Common clients send one of them by default, which selects our
default voice."""

_DEFAULTS = SessionSettings()
"Settings of a session whose client sent none. A null from a client resets a field to them."
_WHOLE = ("output_modalities", "audio", "tools", "tool_choice", "max_output_tokens")
"""Keys of a whole session object. A client that sends all of them returns what it was shown, or
fills in defaults: an empty text among them is only a placeholder."""


@dataclass(frozen=True, slots=True)
class SessionConfiguration:
    """Configuration of one connection: the settings in effect, and what is fixed once connected."""

    settings: SessionSettings = _DEFAULTS
    include: frozenset[str] = frozenset()
    "Events and fields that clients get only on request."
    prompt: PromptSelection | None = None
    "Stored prompt that the client named."
    conversation_id: str | None = None
    "Conversation to continue; None: a new one."
    input_format: FormatName = PCM
    "Format of the client's audio."
    output_format: FormatName = PCM
    "Format of the audio that the client gets."
    says_input_rate: bool = False
    "True: the client stated the rate of its audio. False: the real rate may differ."
    is_beta: bool = False
    "True: the client uses the beta shape of the API."
    has_spoken: bool = False
    "True: the client has received audio of a response, so the voice cannot be changed any more."
    secret_holder: ClientSecretHolder | None = None
    "Holder of the client secret; None if the client came with the server's key."
    shows_extension: bool = False
    """True: the client named a conversation or sent the field `earshot`, so it is shown that
    field."""


def own_voice(voice: str | VoiceId) -> str:
    """Returns our name for a voice: the default voice for OpenAI's names."""
    name = voice.id if isinstance(voice, VoiceId) else voice
    return DEFAULT if name in OPENAI_VOICES else name


def conversation_of(sent: SessionObject) -> str | None:
    """Returns the id of the conversation that a session object asks for, or None."""
    extension = sent_object(sent.earshot)
    return sent_object(extension.conversation_id) if extension else None


def apply_session_update(
    configuration: SessionConfiguration, sent: SessionObject
) -> SessionConfiguration:
    """Returns the configuration with a client's changes. Raises RequestError for unsupported
    ones."""
    settings = replace(configuration.settings, answers=isinstance(sent, RealtimeSession))
    if isinstance(sent, RealtimeSession):
        prompt = _prompt(configuration, sent)
        stored = instructions_of(prompt, settings.prompts, "session") if prompt else ""
        settings = _with_answering(settings, sent, _instructions(configuration, sent, stored))
        configuration = replace(configuration, prompt=prompt)
    audio = sent.audio
    if isinstance(audio, SessionAudio | TranscriptionAudio) and isinstance(audio.input, AudioInput):
        settings = _with_input(settings, audio.input)
    return _with_extension(_with_formats(replace(configuration, settings=settings), audio), sent)


def check_unchanged(old: SessionConfiguration, new: SessionConfiguration) -> None:
    """Raises Conflict if an update changes what is fixed once connected. That is the model, the
    conversation, and the voice after its first audio."""
    if new.settings.llm != old.settings.llm:
        raise Conflict(
            "The model cannot be changed after connecting: choose it in the request.",
            code="cannot_update_model",
            param="session.model",
        )
    if new.conversation_id != old.conversation_id:
        raise Conflict(
            "The conversation cannot be changed after connecting: choose it in the request.",
            code="cannot_update_conversation",
            param="session.earshot.conversation_id",
        )
    if old.has_spoken and new.settings.voice != old.settings.voice:
        raise Conflict(
            f"The voice cannot be changed after the session has spoken with"
            f" {old.settings.voice!r}: connect again, or name another voice in the response.",
            code="cannot_update_voice",
            param="session.audio.output.voice",
        )


def session_json(configuration: SessionConfiguration, session_id: str) -> dict[str, Any]:
    """Returns the full session object with the values in effect."""
    settings = configuration.settings
    common: dict[str, Any] = {"id": session_id, "include": sorted(configuration.include) or None}
    if configuration.shows_extension:
        common["earshot"] = {"conversation_id": configuration.conversation_id}
        common["earshot"] |= extension_json(settings)
        if decoding := decoding_json(settings):
            common["earshot"]["transcription"] = decoding
    if configuration.prompt is not None and settings.answers:
        common["prompt"] = prompt_json(configuration.prompt)
    audio_input = _input_json(configuration)
    if not settings.answers:
        return {
            "type": "transcription",
            "object": "realtime.transcription_session",
            "audio": {"input": audio_input},
            **common,
        }
    return {
        "type": "realtime",
        "object": "realtime.session",
        "model": settings.llm,
        "instructions": settings.instructions,
        "output_modalities": [settings.modality],
        "audio": {"input": audio_input, "output": output_json(configuration, speed=settings.speed)},
        "tools": tools_json(settings.client_tools, settings.mcp_servers),
        "tool_choice": choice_json(settings.tool_choice),
        "max_output_tokens": settings.max_output_tokens or UNLIMITED,
        "truncation": truncation_json(settings.truncation),
        "tracing": None,
        **model_json(settings),
        **common,
    }


def output_json(
    configuration: SessionConfiguration,
    voice: str | None = None,
    speed: float | None = None,
    format_: FormatName | None = None,
) -> dict[str, Any]:
    """Returns the JSON of the audio output. `voice`, `format_`: None for the session's."""
    out: dict[str, object] = {
        "format": format_json(format_ or configuration.output_format),
        "voice": voice or configuration.settings.voice,
    }
    return out if speed is None else {**out, "speed": speed}


def _prompt(configuration: SessionConfiguration, sent: RealtimeSession) -> PromptSelection | None:
    if isinstance(sent.prompt, UnsetType):
        return configuration.prompt
    return None if sent.prompt is None else prompt_use(sent.prompt, "session")


def _instructions(configuration: SessionConfiguration, sent: RealtimeSession, stored: str) -> str:
    """Returns the instructions in effect. `stored`: those of the prompt, used where none are
    written."""
    settings, now = configuration.settings, configuration.settings.instructions
    if sent_object(sent.prompt):
        now = stored
    elif sent.prompt is None and configuration.prompt is not None:
        was = instructions_of(configuration.prompt, settings.prompts, "session")
        now = _DEFAULTS.instructions if now == was else now
    return updated_value(sent.instructions, now, stored or _DEFAULTS.instructions)


def _is_uninstructed(settings: SessionSettings, sent: RealtimeSession) -> bool:
    """Returns True if the client wants no instructions at all, not even the default ones. It asks
    for that with an empty text. Null or another prompt ends it."""
    is_whole = all(not isinstance(getattr(sent, name), UnsetType) for name in _WHOLE)
    if isinstance(sent.instructions, UnsetType) or (sent.instructions == "" and is_whole):
        return settings.is_uninstructed and isinstance(sent.prompt, UnsetType)
    return sent.instructions == ""


def _with_answering(
    settings: SessionSettings, sent: RealtimeSession, instructions: str
) -> SessionSettings:
    """Applies the fields that only a session with responses has."""
    modalities = updated_value(sent.output_modalities, [settings.modality], [_DEFAULTS.modality])
    tools = read_client_tools(sent.tools, "session")
    changed = replace(
        settings,
        llm=own_model(updated_value(sent.model, settings.llm, _DEFAULTS.llm)),
        instructions=instructions,
        is_uninstructed=_is_uninstructed(settings, sent),
        modality=modalities[0],
        max_output_tokens=output_limit(settings, sent),
        parallel_tool_calls=updated_value(
            sent.parallel_tool_calls, settings.parallel_tool_calls, _DEFAULTS.parallel_tool_calls
        ),
        reasoning_effort=effort_of(sent.reasoning, settings.reasoning_effort),
        client_tools=settings.client_tools if tools is None else tools.functions,
        mcp_servers=settings.mcp_servers if tools is None else tools.servers,
        tool_choice=own_choice(sent.tool_choice) or settings.tool_choice,
        truncation=with_truncation(settings.truncation, sent.truncation),
    )
    output = sent_object(audio.output) if (audio := sent_object(sent.audio)) else None
    return _with_output(changed, output) if output else changed


def _with_formats(
    configuration: SessionConfiguration, audio: OptionalField[SessionAudio | TranscriptionAudio]
) -> SessionConfiguration:
    """Applies the audio formats of both directions."""
    audio_input = (
        sent_object(audio.input) if isinstance(audio, SessionAudio | TranscriptionAudio) else None
    )
    audio_output = sent_object(audio.output) if isinstance(audio, SessionAudio) else None
    if audio_input and not isinstance(audio_input.format, UnsetType):
        has_rate = says_rate(audio_input.format)
        configuration = replace(
            configuration, input_format=name_of(audio_input.format), says_input_rate=has_rate
        )
    if audio_output and not isinstance(audio_output.format, UnsetType):
        configuration = replace(configuration, output_format=name_of(audio_output.format))
    return configuration


def _with_output(settings: SessionSettings, sent: AudioOutput) -> SessionSettings:
    voice = VoiceId(_DEFAULTS.voice) if sent.voice is None else sent.voice
    return replace(
        settings,
        voice=settings.voice if isinstance(voice, UnsetType) else own_voice(voice),
        speed=updated_value(sent.speed, settings.speed, _DEFAULTS.speed),
    )


def _with_input(settings: SessionSettings, sent: AudioInput) -> SessionSettings:
    """Applies transcription, noise reduction and turn detection; null turns each of them off."""
    if sent.transcription is None:
        settings = replace(settings, transcribes=False)
    elif isinstance(sent.transcription, InputTranscription):
        asr = own_model(updated_value(sent.transcription.model, settings.asr, _DEFAULTS.asr))
        settings = with_transcription(settings, sent.transcription, asr)
    settings = with_noise_reduction(settings, sent.noise_reduction)
    if isinstance(sent.turn_detection, UnsetType):
        return settings
    detection = sent.turn_detection
    now = None if detection is None else with_turn_detection(settings.turn_detection, detection)
    return replace(settings, turn_detection=now)


def _with_extension(
    configuration: SessionConfiguration, sent: SessionObject
) -> SessionConfiguration:
    """Applies `include` and the field `earshot`."""
    include: Sequence[str] = updated_value(sent.include, sorted(configuration.include), [])
    settings = replace(configuration.settings, logprobs=LOGPROBS in include)
    if extension := sent_object(sent.earshot):
        settings = with_extension(with_decoding(settings, extension.transcription), extension)
    configuration = replace(configuration, settings=settings, include=frozenset(include))
    if isinstance(sent.earshot, UnsetType):
        return configuration
    conversation_id = conversation_of(sent) or configuration.conversation_id
    return replace(configuration, conversation_id=conversation_id, shows_extension=True)


def _input_json(configuration: SessionConfiguration) -> dict[str, Any]:
    settings = configuration.settings
    return {
        "format": format_json(configuration.input_format),
        "noise_reduction": noise_reduction_json(settings),
        "transcription": transcription_json(settings) if settings.transcribes else None,
        "turn_detection": turn_detection_json(settings.turn_detection),
    }
