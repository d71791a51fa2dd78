"""Session object of GPT-Live as clients send it. An unknown key is an error that names it.

Fields that have no use here are accepted if leaving them out changes nothing that a client hears.
Fields that would change the conversation, such as `store: true`, are refused.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, Struct, UnsetType

from pipeline.shared.settings import ReasoningEffort
from signaling.realtime.protocol.structs import StrictStruct
from signaling.realtime.session.schema import OutputTokens, VoiceId
from signaling.realtime.session.tools import ToolChoiceObject, ToolDefinitions

MAX_HISTORY = 128
"Messages of a session's history, as in OpenAI's service."

Milliseconds = Annotated[int, Meta(ge=0)]


# Audio.


class PcmAudio(StrictStruct, frozen=True, tag="audio/pcm", tag_field="type"):
    """PCM, s16le, mono."""

    rate: Literal[16000, 24000] = 24000


class PcmuAudio(StrictStruct, frozen=True, tag="audio/pcmu", tag_field="type"):
    """G.711 mu-law, 8 kHz."""

    rate: Literal[8000] = 8000


class PcmaAudio(StrictStruct, frozen=True, tag="audio/pcma", tag_field="type"):
    """G.711 A-law, 8 kHz."""

    rate: Literal[8000] = 8000


AudioFormatObject: TypeAlias = PcmAudio | PcmuAudio | PcmaAudio


class LiveAudioOutput(StrictStruct, frozen=True):
    voice: str | VoiceId | None = None


class LiveAudio(StrictStruct, frozen=True):
    """Audio of a session. `format` is for both directions, and only over a WebSocket."""

    format: AudioFormatObject | None = None
    output: LiveAudioOutput | None = None


# Delegation.


class Reasoning(StrictStruct, frozen=True):
    effort: ReasoningEffort | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    "Accepted without effect: no model here writes a summary."


class BackendTextOptions(StrictStruct, frozen=True):
    verbosity: Literal["low", "medium", "high"] | None = None
    "Accepted without effect."


class ResponsesBackend(StrictStruct, frozen=True):
    """Model that works on delegated tasks, with its tools. Here it is the model that speaks."""

    model: str | UnsetType | None = UNSET
    instructions: str | UnsetType | None = UNSET
    tools: ToolDefinitions | UnsetType | None = UNSET
    tool_choice: ToolChoiceObject | UnsetType | None = UNSET
    parallel_tool_calls: bool | UnsetType | None = UNSET
    max_output_tokens: OutputTokens | UnsetType | None = UNSET
    reasoning: Reasoning | UnsetType | None = UNSET
    text: BackendTextOptions | UnsetType | None = UNSET
    service_tier: str | UnsetType | None = UNSET
    "Accepted without effect: there is one tier."


class ClientDelegation(StrictStruct, frozen=True, tag="client", tag_field="type"):
    """Delegated tasks go to the client's application."""

    acknowledgement_delay_ms: Milliseconds | None = None
    "Accepted without effect: the model itself says that it delegates, or does not."


class ResponsesDelegation(StrictStruct, frozen=True, tag="responses", tag_field="type"):
    """Delegated tasks are the server's; the client only runs the tools."""

    responses: ResponsesBackend | None = None
    acknowledgement_delay_ms: Milliseconds | None = None
    "Accepted without effect, as with client delegation."


Delegation: TypeAlias = ClientDelegation | ResponsesDelegation


# History.


class HistoryText(StrictStruct, frozen=True):
    text: str
    type: Literal["input_text", "output_text", "text"] = "input_text"


class HistoryMessage(StrictStruct, frozen=True):
    """Message of the history with which a session begins."""

    role: Literal["developer", "user", "assistant"]
    content: Annotated[list[HistoryText], Meta(min_length=1, max_length=1)]
    type: Literal["message"] = "message"
    id: Annotated[str, Meta(min_length=1, max_length=64)] | None = None
    status: Literal["incomplete", "completed"] | None = None


# Session.


class LiveSession(StrictStruct, frozen=True):
    """Session object of `session.start` and of `POST /v1/live/sessions`."""

    model: str
    instructions: str | None = None
    input: Annotated[list[HistoryMessage], Meta(max_length=MAX_HISTORY)] | None = None
    audio: LiveAudio | None = None
    delegation: Delegation | None = None
    safety_identifier: str | None = None
    "Accepted without effect: it is for the abuse detection of OpenAI's service."
    store: Literal[False] | None = None


class LiveSessionUpdate(StrictStruct, frozen=True):
    """Session object of `session.update`. Everything but the delegation is fixed at the start."""

    delegation: Delegation | None = None


# Request and answer of `POST /v1/live/sessions`.


class WebrtcTransport(StrictStruct, frozen=True):
    """The browser's offer, and in the answer the server's."""

    sdp: str
    type: Literal["webrtc"] = "webrtc"


class LiveCallRequest(StrictStruct, frozen=True):
    """Body of `POST /v1/live/sessions`."""

    session: LiveSession
    transport: WebrtcTransport


class LiveCallAnswer(Struct, frozen=True):
    """Id of the new session, and the SDP answer."""

    session: dict[str, Any]
    transport: WebrtcTransport
