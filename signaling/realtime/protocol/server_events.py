"""Builds server events as JSON objects with exactly the fields of the GA API. No state, no ids."""

from time import perf_counter
from typing import Any, assert_never

from aiohttp import web as aioweb
from msgspec.json import encode

from core.conversation.events import (
    Modality,
    ResponseCreated,
    ResponseDone,
    ServerToolItem,
    TranscriptionCompleted,
    TurnTimeline,
    WakeStateChanged,
)
from core.conversation.items import (
    AudioPart,
    ContentPart,
    FunctionCallItem,
    FunctionOutputItem,
    ImagePart,
    Item,
    McpApprovalRequestItem,
    McpApprovalResponseItem,
    McpCallItem,
    McpListItem,
    MessageItem,
    TextPart,
)
from core.conversation.speakers import SpeakerMatch
from core.conversation.usage import RateLimits, TokenUsage
from core.net.connection_stats import AudioFlowStats, ConnectionStats
from signaling.realtime.session.extensions import UNLIMITED
from signaling.realtime.session.mcp import mcp_item_json
from signaling.realtime.session.settings import SessionConfiguration, output_json

Json = dict[str, Any]
"Server event, or a part of it, before encoding."

TRANSCRIPTION = "conversation.item.input_audio_transcription"
"Common beginning of the transcription's event types."

NOT_COUNTED = TokenUsage()
"Usage of a response for which no tokens were counted."


def event(kind: str, /, **fields: object) -> Json:
    """Builds an event of this type."""
    return {"type": kind, **fields}


def to_text(out: Json) -> str:
    """Encodes an event as JSON text."""
    return encode(out).decode()


def error_event(
    code: str, message: str, *, kind: str, param: str | None = None, event_id: str | None = None
) -> Json:
    """Builds an `error` event. `kind`: invalid_request_error, server_error or rate_limit_error.
    `event_id`: the client's event that caused it."""
    error = {"type": kind, "code": code, "message": message, "param": param, "event_id": event_id}
    return event("error", error=error)


def item_json(item: Item) -> Json:
    """Builds an item of the conversation."""
    common: Json = {"id": item.id, "object": "realtime.item"}
    match item:
        case MessageItem(role=role, parts=parts, status=status):
            content = [_content(part, role) for part in parts]
            return {**common, "type": "message", "status": status, "role": role, "content": content}
        case FunctionCallItem(call_id=call_id, name=name, arguments=arguments, status=status):
            return {
                **common,
                "type": "function_call",
                "status": status,
                "call_id": call_id,
                "name": name,
                "arguments": arguments,
            }
        case FunctionOutputItem(call_id=call_id, output=output):
            return {
                **common,
                "type": "function_call_output",
                "status": "completed",
                "call_id": call_id,
                "output": output,
            }
        case McpListItem() | McpApprovalRequestItem() | McpApprovalResponseItem() | McpCallItem():
            return {**common, **mcp_item_json(item)}
        case _:
            assert_never(item)


def part_json(modality: Modality, text: str) -> Json:
    """Builds the content part of an assistant's message."""
    if modality == "audio":
        return {"type": "audio", "transcript": text}
    return {"type": "text", "text": text}


def response_json(
    session_event: ResponseCreated | ResponseDone,
    conversation_id: str,
    session: SessionConfiguration,
) -> Json:
    """Builds the response object of `response.created` and `response.done`."""
    parameters = session_event.parameters
    response: Json = {
        "id": session_event.response_id,
        "object": "realtime.response",
        "status": "in_progress",
        "status_details": None,
        "output": [],
        "conversation_id": conversation_id if parameters.in_conversation else None,
        "output_modalities": [session_event.modality],
        "max_output_tokens": parameters.max_output_tokens or UNLIMITED,
        "audio": {
            "output": output_json(session, parameters.voice, format_=parameters.audio_format)
        },
        "usage": None,
        "metadata": None if parameters.metadata is None else dict(parameters.metadata),
    }
    if isinstance(session_event, ResponseDone):
        response["status"] = session_event.status
        response["status_details"] = _status_details(session_event)
        response["output"] = [item_json(item) for item in session_event.output]
        response["usage"] = _usage(session_event)
    return response


def transcription_completed(session_event: TranscriptionCompleted) -> list[Json]:
    """Builds the final transcription: a delta with all words, then `completed`."""
    ids: Json = {"item_id": session_event.item_id, "content_index": session_event.content_index}
    completed = event(
        f"{TRANSCRIPTION}.completed",
        **ids,
        transcript=session_event.transcript,
        usage={"type": "duration", "seconds": session_event.audio_s},
    )
    if session_event.logprobs is not None:
        completed["logprobs"] = [_logprob(data, value) for data, value in session_event.logprobs]
    if not session_event.transcript:
        return [completed]
    return [event(f"{TRANSCRIPTION}.delta", **ids, delta=session_event.transcript), completed]


def item_event(stage: str, item: Json, previous_item_id: str | None) -> Json:
    """Builds the event for an item in the conversation. `stage`: `added` or `done`."""
    return event(f"conversation.item.{stage}", previous_item_id=previous_item_id, item=item)


def turn_json(timeline: TurnTimeline) -> Json:
    """Builds the timeline of a turn for `earshot.turn`. Times are in ms."""
    return {
        "id": timeline.turn_id,
        "item_id": timeline.item_id,
        "response_id": timeline.response_id,
        "status": timeline.status,
        "response_latency_ms": timeline.response_latency_ms,
        "stages": [
            {
                "stage": span.stage,
                "start_ms": span.start_ms,
                "end_ms": span.end_ms,
                "is_speculative": span.is_speculative,
            }
            for span in timeline.stages
        ],
        "marks": dict(timeline.marks),
        "speaker": speaker_json(timeline.speaker),
        "cut": None
        if timeline.cut is None
        else {"words": timeline.cut.words, "by": timeline.cut.by},
    }


SPEAKER_EVENT = "conversation.item.speaker"
"Type of the event that says whose voice an item has."


def speaker_json(speaker: SpeakerMatch | None) -> Json | None:
    """Builds the person whose voice was recognised; None: a guest."""
    if speaker is None:
        return None
    return {"id": speaker.id, "name": speaker.name, "score": speaker.score}


def limits_json(limits: RateLimits) -> list[Json]:
    """Builds the limits of `rate_limits.updated`."""
    return [
        {
            "name": limit.name,
            "limit": limit.limit,
            "remaining": limit.remaining,
            "reset_seconds": round(limit.reset_s, 3),
        }
        for limit in limits.limits
    ]


MAX_SHOWN_CHARS = 4_000
"Characters of a tool's arguments or result in `earshot.tool`: enough to read, little to send."


def tool_json(shown: ServerToolItem) -> Json:
    """Builds a call of the server's own tool, or its result, for `earshot.tool`."""
    item = item_json(shown.item)
    for name in ("arguments", "output"):
        if len(item.get(name, "")) > MAX_SHOWN_CHARS:
            item[name] = item[name][:MAX_SHOWN_CHARS] + "\N{HORIZONTAL ELLIPSIS}"
    return {"response_id": shown.response_id, "item": item}


def wake_json(changed: WakeStateChanged) -> Json:
    return {"word": changed.word, "phrase": changed.phrase, "is_awake": changed.is_awake}


def _logprob(data: bytes, value: float) -> Json:
    return {"token": data.decode(errors="replace"), "bytes": list(data), "logprob": value}


def _status_details(done: ResponseDone) -> Json | None:
    """Returns why a response was not completed; None if it was."""
    if done.status == "completed":
        return None
    details: Json = {"type": done.status}
    if done.reason:
        details["reason"] = done.reason
    if done.error_code:
        details["error"] = {
            "type": "server_error",
            "code": done.error_code,
            "message": done.error_message,
        }
    return details


def _usage(done: ResponseDone) -> Json | None:
    """Returns token counts; None if nothing was counted, as each model call reads some tokens. Our
    engines read text, so no tokens count as audio. Images count as text, since model servers do not
    separate them."""
    usage = done.usage
    if usage == NOT_COUNTED:
        return None
    return {
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "input_token_details": {
            "text_tokens": usage.input_tokens,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens": usage.cached_tokens,
            "cached_tokens_details": {"text_tokens": usage.cached_tokens},
        },
        "output_token_details": {"text_tokens": usage.output_tokens, "audio_tokens": 0},
    }


def _content(part: ContentPart, role: str) -> Json:
    is_assistant = role == "assistant"
    match part:
        case AudioPart(transcript=transcript) if is_assistant:
            return {"type": "output_audio", "transcript": transcript or ""}
        case AudioPart(transcript=transcript):
            return {"type": "input_audio", "transcript": transcript}
        case ImagePart(url=url, detail=detail):  # no URL: the image is no longer stored
            return {"type": "input_image", "image_url": url or None, "detail": detail}
        case TextPart(text=text):
            return {"type": "output_text" if is_assistant else "input_text", "text": text}
        case _:
            assert_never(part)


# Event `earshot.connection`: quality of the connection, for clients that list it in `include`.

QUALITY_EVENT = "earshot.connection"


def connection_json(quality: ConnectionStats) -> dict[str, Any]:
    """Builds the quality object. `up`: from the client to us; `down`: the other direction."""
    return {
        "transport": quality.transport,
        "round_trip_ms": _rounded(quality.round_trip_ms),
        "codec": quality.codec,
        "protocol": quality.protocol,
        "local_candidate": quality.local_candidate,
        "remote_candidate": quality.remote_candidate,
        "up": _flow_json(quality.received),
        "down": _flow_json(quality.sent),
    }


def _flow_json(flow: AudioFlowStats | None) -> dict[str, Any] | None:
    if flow is None:
        return None
    return {
        "packets": flow.packets,
        "lost": flow.lost,
        "loss": _rounded(flow.loss, 4),
        "jitter_ms": _rounded(flow.jitter_ms),
        "buffer_ms": _rounded(flow.buffer_ms),
    }


def _rounded(value: float | None, digits: int = 1) -> float | None:
    return None if value is None else round(value, digits)


class RoundTripMeter:
    """Measures a WebSocket's round trip with protocol pings, which clients answer and proxies pass
    on."""

    def __init__(self, ws: aioweb.WebSocketResponse) -> None:
        self._ws = ws
        self._pings = 0
        self._pinged_at: float | None = None
        "Time of the last ping; None once it is answered."

    async def ping(self) -> None:
        """Sends a ping, unless the last one is still unanswered. Raises ConnectionError."""
        if self._pinged_at is not None:
            return
        self._pings += 1
        self._pinged_at = perf_counter()  # uvloop's clock counts whole milliseconds
        await self._ws.ping(self._payload())

    def answered(self, payload: bytes) -> float | None:
        """Takes a pong; returns the round trip in ms. None for a pong to another ping, such as the
        heartbeat's."""
        if self._pinged_at is None or payload != self._payload():
            return None
        took_s, self._pinged_at = perf_counter() - self._pinged_at, None
        return 1000 * took_s

    def _payload(self) -> bytes:
        return b"round trip %d" % self._pings
