"""What a client can be sent: over WebRTC no event above what its end of the channel takes.

Chromium takes 256 KiB, a peer that does not say 64 KiB (RFC 8841 section 6.1). An event that would
be larger is prevented where a client asks for it, else it is shown without its images, and if even
that is too large an error tells of it: a client is never dropped for what it may not be sent.
"""

from core.errors import RequestError
from signaling.realtime.protocol.server_events import Json, to_text
from signaling.realtime.protocol.translator import EventTranslator

MARGIN_BYTES = 512
"For what is not known yet when an event is weighed: its number, and the item that it follows."


class EventSizeLimit:
    """`limit_bytes`: None where there is none."""

    def __init__(self, translator: EventTranslator, limit_bytes: int | None) -> None:
        self._translator = translator
        self._limit_bytes = limit_bytes

    def check(self, out: Json, param: str) -> None:
        """Raises RequestError if the client could not be sent this event."""
        if self._limit_bytes is None:
            return
        text = self._translator.to_text(_without_images(out))
        size = 0 if text is None else len(text.encode()) + MARGIN_BYTES
        if size > self._limit_bytes:
            raise RequestError(
                f"'{param}' makes an event of {size} bytes; this client's data channel takes "
                f"{self._limit_bytes}.",
                code="event_too_large",
                param=param,
            )

    def text(self, out: Json) -> str | None:
        """The event as the client is sent it; None: it knows no such event."""
        text = self._translator.to_text(out)
        if text is None or self._takes(text):
            return text
        shorter = self._translator.to_text(_without_images(out))
        if shorter is None or self._takes(shorter):
            return shorter
        message = f"'{out['type']}' is too large for this client's data channel: it is not sent."
        return to_text(self._translator.error("event_too_large", message, kind="server_error"))

    def _takes(self, text: str) -> bool:
        limit = self._limit_bytes
        # Almost all are far below it in any encoding.
        return limit is None or 4 * len(text) <= limit or len(text.encode()) <= limit


def _without_images(out: Json) -> Json:
    """As of images that are not kept any more."""
    item = out.get("item")
    if item is None or "content" not in item:
        return out
    content = [
        {**part, "image_url": None} if part["type"] == "input_image" else part
        for part in item["content"]
    ]
    return {**out, "item": {**item, "content": content}}
