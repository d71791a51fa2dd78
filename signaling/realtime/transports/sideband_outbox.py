"""Queue of events for one sideband connection of the Realtime API, in its shape of the API."""

from signaling.realtime.protocol.beta import to_beta, to_ga
from signaling.realtime.protocol.client_events import ClientEvent
from signaling.realtime.protocol.decode import decode
from signaling.realtime.protocol.server_events import Json, to_text
from signaling.realtime.transports.sideband_queue import MAX_UNREAD_EVENTS, SidebandQueue

OWN_EVENTS = "earshot."
"""Prefix of our own events. They are sent only to the call's own client, which asked for them in
`session.include`: clients of OpenAI's service may fail over an unknown event."""


class SidebandOutbox(SidebandQueue):
    """Unread events of one sideband connection of the Realtime API."""

    def __init__(
        self, max_unread_events: int = MAX_UNREAD_EVENTS, *, is_beta: bool = False
    ) -> None:
        """Creates an empty queue. `is_beta`: its client uses the beta shape, independent of the
        call's client."""
        super().__init__(max_unread_events)
        self._is_beta = is_beta

    def read(self, text: str) -> ClientEvent:
        """Decodes one text of the client. Raises BadEvent."""
        return decode(text, to_ga if self._is_beta else None)

    def send(self, out: Json) -> None:
        """Queues an event in the client's shape, unless that shape does not have it."""
        if out["type"].startswith(OWN_EVENTS):
            return
        shown = to_beta(out) if self._is_beta else out
        if shown is not None:
            self.put(to_text(shown))
