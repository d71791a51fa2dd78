"""The session object and our settings, both ways; and one answer's `response.create`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from msgspec import UNSET, UnsetType

from core.errors import Conflict, RequestError
from pipeline.settings import DEFAULT, ResponseRequest, SessionSettings, TurnDetection
from signaling.realtime.events import ResponseParams
from signaling.realtime.session_object import (
    Audio,
    AudioInput,
    AudioOutput,
    InputOnly,
    RealtimeSession,
    SemanticVad,
    Sent,
    ServerVad,
    SessionObject,
    Transcription,
    VoiceId,
)

T = TypeVar("T")

WIRE_RATE_HZ = 24_000
"PCM of the Realtime API is 24 kHz in both directions; clients hard-code it."

HOSTED_VOICES = frozenset(
    ("alloy", "ash", "ballad", "cedar", "coral", "echo", "marin", "sage", "shimmer", "verse")
)
"Stock clients send one of these by default; they mean our default voice."

HOSTED_MODELS = ("gpt-", "whisper-1")
"How the hosted service's model names begin; stock clients cannot do without one."

_FRESH = SessionSettings()
_WIRE_FORMAT: Mapping[str, Any] = {"type": "audio/pcm", "rate": WIRE_RATE_HZ}


@dataclass(frozen=True, slots=True)
class Terms:
    """What a connection and its client agreed on."""

    settings: SessionSettings = _FRESH
    include: frozenset[str] = frozenset()
    "Events and fields that only those get who ask."
    conversation_id: str | None = None
    "The conversation to go on with; None: a new one."
    knows_conversations: bool = False
    "The client sent the field `earshot`, so it is shown it."


def own_model(name: str) -> str:
    """Our name for a model; those of the hosted service mean `default`."""
    return DEFAULT if name.startswith(HOSTED_MODELS) else name


def own_voice(voice: str | VoiceId) -> str:
    name = voice.id if isinstance(voice, VoiceId) else voice
    return DEFAULT if name in HOSTED_VOICES else name


def merged(terms: Terms, sent: SessionObject) -> Terms:
    """The terms with what was sent. Raises RequestError for what we cannot do."""
    settings = replace(terms.settings, answers=isinstance(sent, RealtimeSession))
    if isinstance(sent, RealtimeSession):
        _refuse_unsupported("session", sent)
        settings = _with_answering(settings, sent)
    audio = sent.audio
    if isinstance(audio, Audio | InputOnly) and isinstance(audio.input, AudioInput):
        settings = _with_input(settings, audio.input)
    return _with_extension(replace(terms, settings=settings), sent)


def check_unchanged(old: Terms, new: Terms) -> None:
    """What is fixed once connected. Raises Conflict."""
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


def response_request(params: ResponseParams | None) -> ResponseRequest:
    """Raises RequestError for what we cannot do."""
    if params is None:
        return ResponseRequest()
    _refuse_unsupported("response", params)
    modalities, audio = _object(params.output_modalities), _object(params.audio)
    output = _object(audio.output) if audio else None
    voice = output.voice if output else None
    return ResponseRequest(
        modality=modalities[0] if modalities else None,
        instructions=_object(params.instructions),
        voice=own_voice(voice) if isinstance(voice, str | VoiceId) else None,
    )


def session_json(terms: Terms, session_id: str) -> dict[str, Any]:
    """The full object, as it is in effect."""
    settings = terms.settings
    common: dict[str, Any] = {"id": session_id, "include": sorted(terms.include) or None}
    if terms.knows_conversations:
        common["earshot"] = {"conversation_id": terms.conversation_id}
    heard = _input_json(settings)
    if not settings.answers:
        return {
            "type": "transcription",
            "object": "realtime.transcription_session",
            "audio": {"input": heard},
            **common,
        }
    return {
        "type": "realtime",
        "object": "realtime.session",
        "model": settings.llm,
        "instructions": settings.instructions,
        "output_modalities": [settings.modality],
        "audio": {"input": heard, "output": output_json(settings.voice, settings.speed)},
        "tools": [],
        "tool_choice": "auto",
        "max_output_tokens": "inf",
        **common,
    }


def output_json(voice: str, speed: float | None = None) -> dict[str, Any]:
    out: dict[str, Any] = {"format": dict(_WIRE_FORMAT), "voice": voice}
    return out if speed is None else {**out, "speed": speed}


def _kept(sent: Sent[T], current: T, cleared: T) -> T:
    """The value in effect: not sent keeps the current one, null takes it back."""
    if isinstance(sent, UnsetType):
        return current
    return cleared if sent is None else sent


def _object(sent: Sent[T]) -> T | None:
    return None if isinstance(sent, UnsetType) else sent


def _with_answering(settings: SessionSettings, sent: RealtimeSession) -> SessionSettings:
    modalities = _kept(sent.output_modalities, [settings.modality], [_FRESH.modality])
    changed = replace(
        settings,
        llm=own_model(_kept(sent.model, settings.llm, _FRESH.llm)),
        instructions=_kept(sent.instructions, settings.instructions, _FRESH.instructions),
        modality=modalities[0],
    )
    output = _object(audio.output) if (audio := _object(sent.audio)) else None
    return _with_output(changed, output) if output else changed


def _with_output(settings: SessionSettings, sent: AudioOutput) -> SessionSettings:
    voice = VoiceId(_FRESH.voice) if sent.voice is None else sent.voice
    return replace(
        settings,
        voice=settings.voice if isinstance(voice, UnsetType) else own_voice(voice),
        speed=_kept(sent.speed, settings.speed, _FRESH.speed),
    )


def _with_input(settings: SessionSettings, sent: AudioInput) -> SessionSettings:
    if sent.transcription is None:
        settings = replace(settings, transcribes=False)
    elif isinstance(sent.transcription, Transcription):
        settings = _with_transcription(settings, sent.transcription)
    if isinstance(sent.turn_detection, UnsetType):
        return settings
    detection = sent.turn_detection
    now = None if detection is None else _turn_detection(settings.turn_detection, detection)
    return replace(settings, turn_detection=now)


def _with_transcription(settings: SessionSettings, sent: Transcription) -> SessionSettings:
    return replace(
        settings,
        transcribes=True,
        asr=own_model(_kept(sent.model, settings.asr, _FRESH.asr)),
        language=_kept(sent.language, settings.language, _FRESH.language),
        prompt=_kept(sent.prompt, settings.prompt, _FRESH.prompt),
    )


def _turn_detection(now: TurnDetection | None, sent: ServerVad | SemanticVad) -> TurnDetection:
    """Another kind begins with its own defaults; the same kind keeps what was not sent."""
    kind: Literal["server_vad", "semantic_vad"] = (
        "server_vad" if isinstance(sent, ServerVad) else "semantic_vad"
    )
    fresh = TurnDetection(kind=kind)
    now = now if now and now.kind == kind else fresh
    both = replace(
        now,
        create_response=_kept(sent.create_response, now.create_response, fresh.create_response),
        interrupt_response=_kept(
            sent.interrupt_response, now.interrupt_response, fresh.interrupt_response
        ),
    )
    if isinstance(sent, SemanticVad):
        return replace(both, eagerness=_kept(sent.eagerness, now.eagerness, fresh.eagerness))
    return replace(
        both,
        threshold=_kept(sent.threshold, now.threshold, fresh.threshold),
        prefix_padding_ms=_kept(
            sent.prefix_padding_ms, now.prefix_padding_ms, fresh.prefix_padding_ms
        ),
        silence_ms=_kept(sent.silence_duration_ms, now.silence_ms, fresh.silence_ms),
    )


def _with_extension(terms: Terms, sent: SessionObject) -> Terms:
    include: Sequence[str] = _kept(sent.include, sorted(terms.include), [])
    terms = replace(terms, include=frozenset(include))
    if isinstance(sent.earshot, UnsetType):
        return terms
    wanted = _object(sent.earshot.conversation_id) if sent.earshot else None
    conversation_id = wanted or terms.conversation_id
    return replace(terms, conversation_id=conversation_id, knows_conversations=True)


def _refuse_unsupported(prefix: str, sent: RealtimeSession | ResponseParams) -> None:
    """Leaving these out silently would change the answers. Raises RequestError."""
    wishes: dict[str, Any] = {"tools": sent.tools, "prompt": sent.prompt}
    if _object(sent.tool_choice) not in (None, "auto", "none"):
        wishes["tool_choice"] = sent.tool_choice
    if isinstance(sent, ResponseParams):
        wishes |= {"input": sent.input, "metadata": sent.metadata}
        if sent.conversation == "none":
            wishes["conversation"] = sent.conversation
    for name, wish in wishes.items():
        if wish and wish is not UNSET:
            raise RequestError(
                f"'{prefix}.{name}' is not supported here: leave it out.",
                code="unsupported_parameter",
                param=f"{prefix}.{name}",
            )


def _input_json(settings: SessionSettings) -> dict[str, Any]:
    transcription: dict[str, Any] = {"model": settings.asr, "language": settings.language}
    if settings.prompt:
        transcription["prompt"] = settings.prompt
    return {
        "format": dict(_WIRE_FORMAT),
        "noise_reduction": None,
        "transcription": transcription if settings.transcribes else None,
        "turn_detection": _turn_detection_json(settings.turn_detection),
    }


def _turn_detection_json(detection: TurnDetection | None) -> dict[str, Any] | None:
    if detection is None:
        return None
    both: dict[str, Any] = {
        "type": detection.kind,
        "create_response": detection.create_response,
        "interrupt_response": detection.interrupt_response,
    }
    if detection.kind == "semantic_vad":
        return {**both, "eagerness": detection.eagerness}
    return {
        **both,
        "threshold": detection.threshold,
        "prefix_padding_ms": detection.prefix_padding_ms,
        "silence_duration_ms": detection.silence_ms,
        "idle_timeout_ms": None,
    }
