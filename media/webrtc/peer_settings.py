"""Settings and callbacks of a peer, and the reasons for which it ends."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from types import TracebackType

from core.audio import ASR_RATE_HZ, AudioFrame
from media.codecs.opus import OPUS_RATE_HZ, OpusSettings
from media.webrtc.data_channel import CHANNEL_LABEL, MAX_BUFFERED_BYTES
from media.webrtc.ice.settings import IceSettings
from media.webrtc.rtp.pacer import PacingTimer


class CloseReason(StrEnum):
    """Reason for which a call ended."""

    CLOSED = "closed"
    "We closed it."
    REMOTE_CLOSED = "remote_closed"
    "The other side closed it."
    CONNECT_TIMEOUT = "connect_timeout"
    "It was not connected within connect_timeout_s."
    CONNECT_FAILED = "connect_failed"
    "ICE or DTLS failed before it was connected."
    CONNECTION_LOST = "connection_lost"
    "No packet arrived for vanished_timeout_s, or ICE consent expired."
    LAGGING = "lagging"
    "The other side did not read our events."
    EVENT_TOO_LARGE = "event_too_large"
    """An event was larger than the other side accepts (256 KiB in browsers), and no event may be
    lost."""


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """Settings of a peer."""

    ice: IceSettings = field(default_factory=IceSettings)
    opus: OpusSettings = field(default_factory=OpusSettings)
    playout_rate_hz: int = OPUS_RATE_HZ
    "Rate of the frames that `pull` returns: 8, 12, 16, 24 or 48 kHz, the rates of Opus."
    plays: bool = True
    "False: audio comes in only, and `pull` is never called."
    listen_rate_hz: int = ASR_RATE_HZ
    "Rate of the frames given to `on_frame`."
    jitter_depth: int = 1
    """Packets that are held back after a gap, so that a reordered one still fits in; each costs
    20 ms."""
    connect_timeout_s: float = 15
    "Longest time from `run` until media flows. Browsers give up ICE after 15 s."
    vanished_timeout_s: float = 15
    """Time without a packet after which the peer counts as lost. A living peer sends at least RTCP
    every 5 s, muted or not."""
    max_buffered_bytes: int = MAX_BUFFERED_BYTES
    "Most bytes of events that may wait to be sent."
    channel_label: str = CHANNEL_LABEL
    'Label of the event channel; "" accepts any.'
    pacer: PacingTimer = field(default_factory=PacingTimer)
    "Timer that sends the audio of all peers with these settings."


@dataclass(frozen=True, slots=True)
class PeerCallbacks:
    """Callbacks of a peer. They are called in the event loop and must not block. An exception in
    one ends the peer (see `Peer.run`)."""

    pull: Callable[[], AudioFrame | None]
    """Returns the next 20 ms to play, mono at playout_rate_hz; None plays silence. Called every
    20 ms."""
    on_frame: Callable[[AudioFrame], None]
    "Takes received audio: mono at listen_rate_hz, exactly 20 ms each, with `start` without gaps."
    on_message: Callable[[str | bytes], None]
    "Takes a message of the event channel."
    next_sound_event: Callable[[], asyncio.Event | None] = lambda: None
    """Called before silence is sent. If audio is about to come, it returns an event that is set
    once the audio is there; otherwise None."""
    on_open: Callable[[], None] = lambda: None
    "Called when the event channel is open. Never called for a peer that brings no channel."
    on_connected: Callable[[], None] = lambda: None
    "Called when media flows."
    on_closed: Callable[[CloseReason], None] = lambda reason: None
    "Called once, when everything is freed."


# An exception in one of our callbacks must end the peer. In aiortc's tasks it would only be logged.


class CallbackGuard:
    """Context manager that passes an exception of its body to `fail`, and suppresses it."""

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
