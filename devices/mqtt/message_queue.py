"""Messages that the broker is to get. Of each topic only the newest message waits, so a slow broker
costs no memory and gets no old states."""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field

MAX_PASSING = 256
"""Most topics of which a message without retention waits. Each device has one, and errors another;
the longest waiting are dropped first."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message for the broker."""

    topic: str
    payload: bytes = field(repr=False)
    "Empty and retained: removes what the broker holds."
    is_retained: bool


class OutgoingMessages:
    """Compares what the broker holds with what it is to hold, and queues the rest."""

    def __init__(self) -> None:
        self._held: dict[str, bytes | None] = {}
        "Topic -> payload that the broker holds. None: it holds an unknown one."
        self._wanted: Mapping[str, bytes] | None = None
        "None: what is wanted is not known yet, so nothing may be removed."
        self._passing: OrderedDict[str, bytes] = OrderedDict()
        self.dropped = 0
        "Number of messages without retention that were dropped for newer topics."

    def begin(self) -> None:
        """Forgets what the broker holds: it is another connection, or everything is asked for."""
        self._held = {}

    def note_held(self, topic: str) -> None:
        """Records that the broker holds a message of this topic from before."""
        self._held.setdefault(topic, None)

    def want(self, messages: Mapping[str, bytes]) -> None:
        """Sets all retained messages that the broker is to hold."""
        self._wanted = messages

    def pass_on(self, topic: str, payload: bytes) -> None:
        """Queues a message that the broker is not to hold."""
        self._passing.pop(topic, None)
        self._passing[topic] = payload
        if len(self._passing) > MAX_PASSING:
            self._passing.popitem(last=False)
            self.dropped += 1

    def drop_passing(self) -> None:
        """Drops what is not retained: it is old news after a time without connection."""
        self._passing.clear()

    def next(self) -> OutgoingMessage | None:
        """Returns the message to send next, or None. `confirm` tells that it was sent."""
        for topic, payload in (self._wanted or {}).items():
            if self._held.get(topic) != payload:
                return OutgoingMessage(topic, payload, is_retained=True)
        if self._wanted is not None:
            for topic in self._held:
                if topic not in self._wanted:
                    return OutgoingMessage(topic, b"", is_retained=True)
        for topic, payload in self._passing.items():
            return OutgoingMessage(topic, payload, is_retained=False)
        return None

    def confirm(self, sent: OutgoingMessage) -> None:
        """Records that the broker has this message."""
        if not sent.is_retained:
            if self._passing.get(sent.topic) is sent.payload:
                del self._passing[sent.topic]
        elif sent.payload:
            self._held[sent.topic] = sent.payload
        else:
            self._held.pop(sent.topic, None)
