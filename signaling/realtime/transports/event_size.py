"""Limits the size of events: over WebRTC a client's data channel takes only messages up to a limit.

Chromium takes 256 KiB, a peer that does not say its limit 64 KiB (RFC 8841 section 6.1). A request
that would cause a larger event is refused. Any other large event is sent without its images; if it
is still too large, the client gets an error event instead. A client is never disconnected for an
event that it cannot receive.
"""

from core.errors import RequestError
from signaling.realtime.protocol.server_events import Json, to_text
from signaling.realtime.protocol.translator import EventTranslator

MARGIN_BYTES = 512
"""Reserve in bytes for parts that are unknown when an event is measured: its id, and the id of the
previous item."""


class EventSizeLimit:
    """Size limit of one connection's events. `limit_bytes`: None for no limit."""

    def __init__(self, translator: EventTranslator, limit_bytes: int | None) -> None:
        self._translator = translator
        self._limit_bytes = limit_bytes

    def check(self, event: Json, param: str) -> None:
        """Raises RequestError if the client could not receive this event."""
        if self._limit_bytes is None:
            return
        text = self._translator.to_text(_without_images(event))
        size = 0 if text is None else len(text.encode()) + MARGIN_BYTES
        if size > self._limit_bytes:
            raise RequestError(
                f"'{param}' makes an event of {size} bytes; the limit of this client's data"
                f" channel is {self._limit_bytes}.",
                code="event_too_large",
                param=param,
            )

    def text(self, event: Json) -> str | None:
        """Returns the text to send for an event; None if the client's shape has no such event."""
        text = self._translator.to_text(event)
        if text is None or self._fits(text):
            return text
        shorter = self._translator.to_text(_without_images(event))
        if shorter is None or self._fits(shorter):
            return shorter
        message = f"'{event['type']}' is too large for this client's data channel: it is not sent."
        return to_text(self._translator.error("event_too_large", message, kind="server_error"))

    def _fits(self, text: str) -> bool:
        limit = self._limit_bytes
        # Most events are far below the limit in any encoding.
        return limit is None or 4 * len(text) <= limit or len(text.encode()) <= limit


def _without_images(event: Json) -> Json:
    """Removes the images' data, as for images that are no longer stored."""
    item = event.get("item")
    if item is None or "content" not in item:
        return event
    content = [
        {**part, "image_url": None} if part["type"] == "input_image" else part
        for part in item["content"]
    ]
    return {**event, "item": {**item, "content": content}}
