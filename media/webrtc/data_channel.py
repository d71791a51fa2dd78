"""Data channel for events: text in both directions, with a limit on what a slow peer may leave
unread."""

import asyncio
from collections.abc import Callable

from aiortc import RTCDataChannel

CHANNEL_LABEL = "oai-events"
"Label that OpenAI Realtime clients use."

MAX_BUFFERED_BYTES = 1024 * 1024
"""Most bytes that may wait to be sent: about an hour of events. A peer with more of them is not
reading."""

MAX_EARLY_MESSAGES = 256
"Most messages that are kept until the channel opens; a session sends only a few by then."


MAX_HOLD_S = 0.008
"""Longest time in seconds that texts wait for audio that is about to be sent. Sending a text takes
0.1 ms, and on a busy machine another process may run first. The audio is ready within 4 ms, or not
soon at all."""


class EventChannel:
    """Sends texts in order. It never blocks and never raises; callbacks report problems, and the
    owner then closes the connection.

    `on_lagging` is called when a limit is exceeded, `on_too_large` for a text that the peer does
    not accept (browsers accept 256 KiB).
    """

    def __init__(
        self,
        on_open: Callable[[], None],
        on_message: Callable[[str | bytes], None],
        on_closed: Callable[[], None],
        on_lagging: Callable[[], None],
        on_too_large: Callable[[], None],
        max_buffered_bytes: int = MAX_BUFFERED_BYTES,
        label: str = CHANNEL_LABEL,
    ) -> None:
        """Creates the channel; `attach` gives it its aiortc channel. `label`: the expected label;
        "" accepts any."""
        self._on_open, self._on_message = on_open, on_message
        self._on_closed, self._on_lagging = on_closed, on_lagging
        self._on_too_large = on_too_large
        self._max_buffered_bytes = max_buffered_bytes
        self._label = label
        self._channel: RTCDataChannel | None = None
        self._early: list[str] = []
        self._held: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        "Timer that releases the held texts; None while no texts are held."

    @property
    def is_holding(self) -> bool:
        """True while texts are held back."""
        return self._timer is not None

    def hold(self) -> None:
        """Holds texts back until `release`, or for `MAX_HOLD_S`."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(MAX_HOLD_S, self.release)

    def release(self) -> None:
        """Sends the texts that were held back, in order."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        held, self._held = self._held, []
        for text in held:
            self._send(text)

    def attach(self, channel: RTCDataChannel) -> None:
        """Uses this aiortc channel. A channel with a wrong label is closed, and so is a second
        one."""
        if (self._label and channel.label != self._label) or self._channel is not None:
            channel.close()
            return
        self._channel = channel
        channel.on("message", self._on_message)
        channel.on("close", self._on_closed)
        if channel.readyState == "open":
            self._opened()
        else:
            channel.on("open", self._opened)

    def send(self, text: str) -> None:
        """Sends a text. Until the channel opens, texts are kept; after it is closed they are
        dropped."""
        if self.is_holding:
            self._held.append(text)
        else:
            self._send(text)

    def _send(self, text: str) -> None:
        if self._channel is None or self._channel.readyState == "connecting":
            self._early.append(text)
            if len(self._early) > MAX_EARLY_MESSAGES:
                self._on_lagging()
        elif self._channel.readyState == "open":
            try:
                self._channel.send(text)
            except ValueError:  # aiortc: the text is larger than the peer's max-message-size
                self._on_too_large()
            if self._channel.bufferedAmount > self._max_buffered_bytes:
                self._on_lagging()

    def _opened(self) -> None:
        early, self._early = self._early, []
        for text in early:
            self.send(text)
        self._on_open()
