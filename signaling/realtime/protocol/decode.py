"""Decodes one text of a client to a client event. Bounded, no state."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Generic, TypeVar, get_args

import msgspec

from core.errors import RequestError
from signaling.realtime.protocol.client_events import MAX_EVENT_ID_LENGTH, ClientEvent, InputAppend
from signaling.realtime.protocol.validation import MAX_NAME_LENGTH, validate

EventT = TypeVar("EventT", bound=msgspec.Struct)

MAX_APPEND_BYTES = 15 * 1024 * 1024
"Largest audio in one event, as in OpenAI's API."

MAX_EVENT_BYTES = MAX_APPEND_BYTES // 3 * 4 + 64 * 1024
"Largest event: that audio as base64, and the event's other fields."

MAX_CONTROL_EVENT_BYTES = 256 * 1024
"Largest event without audio. The longest instructions of a real client have some 50 kB."

MEDIA = ("audio", "image_url")
"Fields of an item's content that may be long."


class BadEvent(RequestError):
    """Raised for a client event that is invalid. `event_id`: the client's own, if it could be
    read."""

    def __init__(
        self, message: str, *, code: str, param: str | None = None, event_id: str | None = None
    ) -> None:
        super().__init__(message, code=code, param=param)
        self.event_id = event_id


def _decoded(text: str) -> dict[str, object]:
    """Parses JSON text to an object. Raises BadEvent, also for JSON with too many parts."""
    _check_size(len(text), MAX_EVENT_BYTES)
    limit = MAX_CONTROL_EVENT_BYTES
    # Fields that may be long hold base64, which has none of these characters. 20 MiB of `{},` took
    # 600 MB and 0.6 s to parse.
    if len(text) > limit and sum(map(text.count, ",[{")) > limit:
        raise too_large(limit)
    try:
        raw = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise BadEvent("The event is not valid JSON.", code="invalid_json") from None
    if not isinstance(raw, dict):
        raise BadEvent("The event is not a JSON object.", code="invalid_json")
    return raw


def _event_id(raw: dict[str, object]) -> str | None:
    """Returns the event's id if it is short enough to be repeated in an error."""
    sent = raw.get("event_id")
    return sent if isinstance(sent, str) and len(sent) <= MAX_EVENT_ID_LENGTH else None


def _media_size(raw: dict[str, object]) -> int:
    """Returns the size of audio and images in items: they have limits of their own."""
    response = raw.get("response")
    sent = _listed(response, "input") if isinstance(response, dict) else []
    items = [raw.get("item"), *sent]
    parts = [part for item in items if isinstance(item, dict) for part in _listed(item, "content")]
    media = [part.get(name) for part in parts if isinstance(part, dict) for name in MEDIA]
    return sum(len(audio) for audio in media if isinstance(audio, str))


def _listed(raw: dict[str, object], name: str) -> list[object]:
    value = raw.get(name)
    return value if isinstance(value, list) else []


def _check_size(size: int, limit_bytes: int, event_id: str | None = None) -> None:
    """Raises BadEvent if an event is too large. Counts characters: clients' JSON is mostly
    ASCII."""
    if size > limit_bytes:
        raise too_large(limit_bytes, f"{size} bytes", event_id)


def too_large(limit_bytes: int, size: str = "more", event_id: str | None = None) -> BadEvent:
    """Returns the error for an event above its limit."""
    message = f"The event has {size}; the limit is {limit_bytes} bytes."
    return BadEvent(message, code="event_too_large", event_id=event_id)


def _unknown(name: object) -> tuple[str, str]:
    if name is None:
        return "missing_required_parameter", "Missing required parameter: 'type'."
    if not isinstance(name, str):
        return "invalid_type", "Invalid type for 'type': expected str."
    return "unknown_event_type", f"Unknown event type: '{name[:MAX_NAME_LENGTH]}'."


def _type_of(kind: type[msgspec.Struct]) -> str:
    """Returns the event type of a struct."""
    return str(kind.__struct_config__.tag)


class EventDecoder(Generic[EventT]):
    """Decodes the events of one protocol: a union of tagged structs."""

    def __init__(
        self,
        decode_fast: Callable[[str], EventT],
        kinds: Iterable[type[EventT]],
        append: type[EventT],
    ) -> None:
        """`decode_fast`: decodes and checks a valid text in one step. `kinds`: the structs of the
        union. `append`: the one that holds audio, and so may be long."""
        self._decode_fast, self._append = decode_fast, append
        self.kinds = {_type_of(kind): kind for kind in kinds}
        "Event type -> its struct."

    def decode(
        self, text: str, reshape: Callable[[dict[str, Any]], dict[str, object]] | None = None
    ) -> EventT:
        """Decodes and checks an event. `reshape`: translates an older shape to ours before the
        check. Raises BadEvent."""
        if reshape is None and len(text) <= MAX_CONTROL_EVENT_BYTES:
            with suppress(msgspec.MsgspecError, UnicodeError, RecursionError):
                return self._decode_fast(text)
        # The slow path: an invalid event is parsed again to say why, a long one to count its parts.
        raw = _decoded(text)
        if reshape is not None:
            raw = reshape(raw)
        event_id = _event_id(raw)
        name = raw.get("type")
        kind = self.kinds.get(name) if isinstance(name, str) else None
        if kind is None:
            code, problem = _unknown(name)
            message = f"{problem} Allowed: {', '.join(sorted(self.kinds))}."
            raise BadEvent(message, code=code, param="type", event_id=event_id)
        if kind is not self._append:
            _check_size(len(text) - _media_size(raw), MAX_CONTROL_EVENT_BYTES, event_id)
        try:
            return validate(raw, kind)
        except RequestError as exc:
            raise BadEvent(str(exc), code=exc.code, param=exc.param, event_id=event_id) from None


DECODER = EventDecoder[ClientEvent](
    msgspec.json.Decoder(ClientEvent).decode, get_args(ClientEvent), InputAppend
)
"Decoder of the Realtime API's events."

decode = DECODER.decode
