"""Translates between the beta and the GA (general availability) shape of the API: event names, and
the flat session object of the beta. Client events become GA events before they are checked, so that
both shapes meet the same rules. Values of a wrong type are left for those rules to refuse. No
state, no I/O."""

from collections.abc import Mapping
from typing import Any

from signaling.realtime.protocol.server_events import Json

HEADER, MARK = "OpenAI-Beta", "realtime=v1"
"Header, and its value, with which a client says that it uses the beta shape."
SUBPROTOCOL = "openai-beta.realtime-v1"
"WebSocket subprotocol with the same meaning, for browsers, which cannot set headers."

_CLIENT_TYPES: Mapping[str, str] = {"transcription_session.update": "session.update"}
"Client events with another name, beta -> GA."

_SERVER_TYPES: Mapping[str, str] = {
    "conversation.item.added": "conversation.item.created",
    "response.output_text.delta": "response.text.delta",
    "response.output_text.done": "response.text.done",
    "response.output_audio.delta": "response.audio.delta",
    "response.output_audio.done": "response.audio.done",
    "response.output_audio_transcript.delta": "response.audio_transcript.delta",
    "response.output_audio_transcript.done": "response.audio_transcript.done",
}
"Server events with another name, GA -> beta."

_GA_ONLY_EVENTS = ("conversation.item.done", "input_audio_buffer.timeout_triggered")
"Events that the beta does not have."

_NOT_IN_FLAT_SESSION = (
    "type",
    "audio",
    "output_modalities",
    "max_output_tokens",
    "truncation",
    "earshot",
)
"Fields of a session that the flat object has under another name, or not at all."

_FORMATS: Mapping[str, str] = {
    "pcm16": "audio/pcm",
    "g711_ulaw": "audio/pcmu",
    "g711_alaw": "audio/pcma",
}
"Audio formats, beta -> GA."
_BETA_FORMATS: Mapping[str, str] = {ga: beta for beta, ga in _FORMATS.items()}

_PARTS: Mapping[str, str] = {"text": "output_text", "audio": "output_audio"}
"Names of the parts of an assistant's message, beta -> GA."
_BETA_PARTS: Mapping[str, str] = {ga: beta for beta, ga in _PARTS.items()}

_SESSION: Mapping[str, tuple[str, ...]] = {
    "modalities": ("output_modalities",),
    "voice": ("audio", "output", "voice"),
    "speed": ("audio", "output", "speed"),
    "input_audio_format": ("audio", "input", "format"),
    "output_audio_format": ("audio", "output", "format"),
    "input_audio_transcription": ("audio", "input", "transcription"),
    "input_audio_noise_reduction": ("audio", "input", "noise_reduction"),
    "turn_detection": ("audio", "input", "turn_detection"),
    "max_response_output_tokens": ("max_output_tokens",),
    "temperature": ("earshot", "temperature"),
}
"Field of the flat object -> its path in the GA object. All other fields have the same name."


def is_beta(headers: Mapping[str, str]) -> bool:
    """Returns True if a request's headers say that its client uses the beta shape."""
    offered = headers.get("Sec-WebSocket-Protocol", "").split(",")
    marks = headers.get(HEADER, "").split(",")
    return MARK in (m.strip() for m in marks) or SUBPROTOCOL in (o.strip() for o in offered)


def is_beta_update(raw: Json) -> bool:
    """Returns True if a client's first event is in the beta shape. That is a session update without
    the type that the GA shape needs, with a field that only the flat object has."""
    kind, session = raw.get("type"), raw.get("session")
    if kind != "session.update" or not isinstance(session, dict):
        return isinstance(kind, str) and kind in _CLIENT_TYPES
    return "type" not in session and not session.keys().isdisjoint(_SESSION)


def to_ga(raw: Json) -> Json:
    """Translates one client event to the GA shape."""
    kind = raw.get("type")
    if not isinstance(kind, str):
        return raw
    out = {**raw, "type": _CLIENT_TYPES.get(kind, kind)}
    session, response, item = raw.get("session"), raw.get("response"), raw.get("item")
    if isinstance(session, dict):
        is_transcription = kind == "transcription_session.update"
        out["session"] = session_to_ga(session, is_transcription=is_transcription)
    if isinstance(response, dict):
        out["response"] = _response_to_ga(response)
    if isinstance(item, dict):
        out["item"] = _item(item, _PARTS)
    return out


def session_to_ga(flat: Json, *, is_transcription: bool = False) -> Json:
    """Translates a session object to the GA shape. One that has a `type` is in that shape
    already."""
    if "type" in flat:
        return flat
    session: Json = {"type": "transcription" if is_transcription else "realtime"}
    for name, value in flat.items():
        if is_transcription and name == "modalities":
            continue  # clients see it in their session and send it back
        _put(session, _SESSION.get(name, (name,)), _value_to_ga(name, value))
    return session


def secret_request_to_ga(flat: object, *, is_transcription: bool) -> Any:
    """Translates the body of `POST /v1/realtime/sessions`: a session, and perhaps its key's
    lifetime."""
    if not isinstance(flat, dict):
        return flat
    session = {name: value for name, value in flat.items() if name != "client_secret"}
    request: Json = {"session": session_to_ga(session, is_transcription=is_transcription)}
    lifetime = flat.get("client_secret")
    return {**request, **lifetime} if isinstance(lifetime, dict) else request


def session_to_beta(session: Json) -> Json:
    """Translates a session object to the flat shape of the beta."""
    flat = {name: value for name, value in session.items() if name not in _NOT_IN_FLAT_SESSION}
    for name, path in _SESSION.items():
        value = _value_at(session, path)
        if value is not _MISSING:
            flat[name] = _value_to_beta(name, value)
    return flat


def to_beta(event: Json) -> Json | None:
    """Translates one server event to the beta shape; None if the beta has no such event."""
    kind = event["type"]
    if kind in _GA_ONLY_EVENTS:
        return None
    out = {**event, "type": _SERVER_TYPES.get(kind, kind)}
    if "session" in event:
        out["session"] = session_to_beta(event["session"])
        if event["session"]["type"] == "transcription" and kind == "session.updated":
            out["type"] = "transcription_session.updated"
    if "item" in event:
        out["item"] = _item(_without_images(event["item"]), _BETA_PARTS)
    if "response" in event:
        out["response"] = _response_to_beta(event["response"])
    if kind == "error":
        param = _param_to_beta(event["error"].get("param"))
        out["error"] = {**event["error"], "param": param}
    return out


def _response_to_ga(flat: Json) -> Json:
    response: Json = {}
    for name, value in flat.items():
        _put(response, _SESSION.get(name, (name,)), _value_to_ga(name, value))
    if isinstance(sent := flat.get("input"), list):
        response["input"] = [_item(i, _PARTS) if isinstance(i, dict) else i for i in sent]
    return response


def _response_to_beta(response: Json) -> Json:
    output = response["audio"]["output"]
    flat = {k: v for k, v in response.items() if k not in ("audio", "output_modalities")}
    return {
        **flat,
        "modalities": _value_to_beta("modalities", response["output_modalities"]),
        "voice": output["voice"],
        "output_audio_format": _value_to_beta("output_audio_format", output["format"]),
        "output": [_item(item, _BETA_PARTS) for item in response["output"]],
    }


def _item(item: Json, parts: Mapping[str, str]) -> Json:
    """Renames the parts of an assistant's message. A user's parts have the same names in both
    shapes."""
    content = item.get("content")
    if item.get("role") != "assistant" or not isinstance(content, list):
        return item
    return {**item, "content": [_part(part, parts) for part in content]}


def _without_images(item: Json) -> Json:
    """Removes images, which the beta does not have; a client with the GA shape may have added
    one."""
    content = [part for part in item.get("content", ()) if part["type"] != "input_image"]
    return {**item, "content": content} if "content" in item else item


def _part(part: Any, parts: Mapping[str, str]) -> Any:
    kind = part.get("type") if isinstance(part, dict) else None
    return {**part, "type": parts[kind]} if isinstance(kind, str) and kind in parts else part


def _value_to_ga(name: str, value: object) -> Any:
    if name == "modalities" and isinstance(value, list) and "audio" in value:
        return ["audio"]  # audio includes its transcript, as in the beta
    if name.endswith("_audio_format") and isinstance(value, str):
        return {"type": _FORMATS.get(value, value)}
    return value


def _value_to_beta(name: str, value: object) -> Any:
    if name == "modalities" and value == ["audio"]:
        return ["audio", "text"]
    if name.endswith("_audio_format") and isinstance(value, dict):
        return _BETA_FORMATS[value["type"]]
    return value


def _param_to_beta(param: str | None) -> str | None:
    """Translates the path of a field: `session.audio.output.voice` -> `session.voice`."""
    if param is None:
        return None
    root, _, path = param.partition(".")
    for name, ga in _SESSION.items():
        at = ".".join(ga)
        if path == at or path.startswith(f"{at}."):
            return f"{root}.{name}{path.removeprefix(at)}"
    return param


_MISSING = object()
"Marks a path that does not exist, as null is a valid value."


def _value_at(tree: Json, path: tuple[str, ...]) -> Any:
    node: object = tree
    for step in path:
        if not isinstance(node, dict) or step not in node:
            return _MISSING
        node = node[step]
    return node


def _put(tree: Json, path: tuple[str, ...], value: Any) -> None:
    """Sets a value in nested objects. Where the client sent another value than an object on the
    way, nothing is set."""
    *above, last = path
    node: Any = tree
    for step in above:
        node = node.setdefault(step, {})
        if not isinstance(node, dict):
            return
    node[last] = value
