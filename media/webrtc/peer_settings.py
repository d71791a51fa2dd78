"""What a peer is told when it is made, and why it ended."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType

from core.audio import ASR_RATE_HZ, AudioFrame
from media.codecs.opus import OPUS_RATE_HZ, OpusSettings
from media.webrtc.data_channel import CHANNEL_LABEL, MAX_BUFFERED_BYTES
from media.webrtc.ice.settings import IceSettings
from media.webrtc.pacer import PacingTimer


class CloseReason(StrEnum):
    CLOSED = "closed"
    "We closed it."
    REMOTE_CLOSED = "remote_closed"
    CONNECT_TIMEOUT = "connect_timeout"
    CONNECT_FAILED = "connect_failed"
    "ICE or DTLS failed."
    CONNECTION_LOST = "connection_lost"
    "Nothing came for vanished_timeout_s, or ICE consent expired."
    LAGGING = "lagging"
    "It did not take our events."
    EVENT_TOO_LARGE = "event_too_large"
    "We had an event above what it takes (256 KiB in browsers), and may not lose one."


@dataclass(frozen=True, slots=True)
class PeerSettings:
    ice: IceSettings = field(default_factory=IceSettings)
    opus: OpusSettings = field(default_factory=OpusSettings)
    playout_rate_hz: int = OPUS_RATE_HZ
    "Rate of the frames that `pull` returns: 8, 12, 16, 24 or 48 kHz, as Opus takes them."
    plays: bool = True
    "False: audio comes in only, and `pull` is never called."
    listen_rate_hz: int = ASR_RATE_HZ
    "Rate of the frames given to `on_frame`."
    jitter_depth: int = 1
    "Packets held back so that reordered ones fit in; each costs 20 ms."
    connect_timeout_s: float = 15
    "From `run` until media flows. Browsers give up ICE after 15 s."
    vanished_timeout_s: float = 15
    "A living peer sends at least RTCP every 5 s, muted or not."
    max_buffered_bytes: int = MAX_BUFFERED_BYTES
    channel_label: str = CHANNEL_LABEL
    pump: PacingTimer = field(default_factory=PacingTimer)
    "Of all peers with these settings: what they play is sent by one timer."


@dataclass(frozen=True, slots=True)
class PeerCallbacks:
    """Called in the event loop; none may block. An exception in one ends the peer (see `run`)."""

    pull: Callable[[], AudioFrame | None]
    "Once per 20 ms: the next 20 ms to play, mono at playout_rate_hz; None plays silence."
    on_frame: Callable[[AudioFrame], None]
    "Received audio, mono at listen_rate_hz, exactly 20 ms each, `start` without gaps."
    on_message: Callable[[str | bytes], None]
    coming: Callable[[], asyncio.Event | None] = lambda: None
    "Before silence is sent: what is set when there is sound, while it is about to come."
    on_open: Callable[[], None] = lambda: None
    "The event channel is open. A peer that brings no channel never calls it."
    on_connected: Callable[[], None] = lambda: None
    "Media flows."
    on_closed: Callable[[CloseReason], None] = lambda reason: None
    "Once, when everything is freed."


# An exception of our callbacks ends their owner; in aiortc's tasks it would only be logged.


class CallbackGuard:
    """Gives an exception of the body to `fail`, and goes on behind it."""

    def __init__(self, fail: Callable[[Exception], None]) -> None:
        self._fail = fail

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> bool:
        if not isinstance(exc, Exception):
            return False
        self._fail(exc)
        return True
