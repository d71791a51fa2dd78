"""The line of a call over Twilio Media Streams: its messages on a WebSocket."""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator

from aiohttp import WSMsgType
from aiohttp import web as aioweb

from core.audio import Pcm
from core.errors import RemoteProtocolError
from devices.telephone.call import IDLE_S, LineKey, LineSound
from devices.telephone.twilio.codec import (
    OtherStreamMessage,
    StreamConnected,
    StreamKey,
    StreamMark,
    StreamMessage,
    StreamSound,
    StreamStarted,
    StreamStopped,
    decode_stream_message,
    encode_clear,
    encode_mark,
    encode_sound,
)
from media.codecs import g711

MAX_UNPLAYED_FRAMES = 100
"""Most frames of 20 ms that count as not played: 2 s. A mark that is later than this was lost, or
the other end sends none; then its sound counts as played."""


class SentSound:
    """Frames of one call. Each has a number, which its mark names; numbers only grow."""

    def __init__(self) -> None:
        self._unplayed: deque[tuple[int, Pcm]] = deque(maxlen=MAX_UNPLAYED_FRAMES)
        self._count = 0

    def add(self, pcm: Pcm) -> int:
        """Notes that a frame is sent. Returns its number."""
        self._count += 1
        self._unplayed.append((self._count, pcm))
        return self._count

    def played(self, number: int) -> None:
        """Notes that this frame and all before it were played. The mark of a frame that was taken
        back changes nothing."""
        while self._unplayed and self._unplayed[0][0] <= number:
            self._unplayed.popleft()

    def take_back(self) -> list[Pcm]:
        """Returns the frames that were not played, oldest first, and forgets them."""
        frames = [pcm for _, pcm in self._unplayed]
        self._unplayed.clear()
        return frames


logger = logging.getLogger(__name__)

LEAD_S = 0.1
"""Sound that is sent ahead of its time. It covers the jitter of the way to Twilio, and late
wake-ups here. `clear` drops it, so an interruption is not later for it."""

START_TIMEOUT_S = 10.0
"Limit for the message `start`. Twilio sends it as soon as it is connected."

CLOSED = frozenset((WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED))


class TwilioLine:
    """A `TelephoneLine`, and its own `LineBuffer`: Twilio plays from a buffer, which can be
    cleared. It plays silence by itself when it has no sound."""

    lead_s = LEAD_S

    def __init__(self, ws: aioweb.WebSocketResponse) -> None:
        self._ws = ws
        self._sent = SentSound()
        self._stream_sid = ""

    @property
    def buffer(self) -> "TwilioLine":
        """See `TelephoneLine`."""
        return self

    async def read_start(self) -> StreamStarted | None:
        """Reads up to `start`. None: the call ended before. Raises RemoteProtocolError."""
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                return await self._read_start()
        except TimeoutError:
            raise RemoteProtocolError(f"no start within {START_TIMEOUT_S:.0f} s") from None

    async def _read_start(self) -> StreamStarted | None:
        async for message in self._messages():
            match message:
                case StreamConnected() | OtherStreamMessage():
                    continue
                case StreamStarted(stream_sid=stream_sid):
                    self._stream_sid = stream_sid
                    return message
                case StreamStopped():
                    return None
                case _:
                    raise RemoteProtocolError("a message before start; allowed: connected, start")
        return None

    async def receive(self) -> AsyncIterator[LineSound | LineKey]:
        """See `TelephoneLine`."""
        async for message in self._messages():
            match message:
                case StreamSound(mu_law=mu_law):
                    yield LineSound(g711.decode(mu_law, "mu"))
                case StreamMark(name=name):
                    if name.isascii() and name.isdigit() and len(name) <= 10:
                        self._sent.played(int(name))
                case StreamKey(digit=digit):
                    yield LineKey(digit)
                case StreamStopped():
                    return
                case StreamStarted():
                    raise RemoteProtocolError("a second start in one stream")
                case StreamConnected():
                    continue
                case OtherStreamMessage(event=event):
                    logger.debug("< Twilio message of unknown kind %r", event)

    async def send(self, pcm: Pcm) -> None:
        """See `TelephoneLine`."""
        number = self._sent.add(pcm)
        await self._ws.send_str(encode_sound(self._stream_sid, g711.encode(pcm, "mu")))
        await self._ws.send_str(encode_mark(self._stream_sid, str(number)))

    async def hang_up(self) -> None:
        """Closes the stream; Twilio then ends the call, because no instruction follows."""
        await self._ws.close()

    # Buffer.

    def take_back(self) -> list[Pcm]:
        """See `LineBuffer`."""
        return self._sent.take_back()

    async def clear(self) -> None:
        """See `LineBuffer`."""
        await self._ws.send_str(encode_clear(self._stream_sid))

    async def _messages(self) -> AsyncIterator[StreamMessage]:
        """Yields messages until the peer has left, or sends nothing for IDLE_S. Raises
        RemoteProtocolError."""
        while True:
            await asyncio.sleep(0)  # else a flood would keep all other tasks from running
            try:
                async with asyncio.timeout(IDLE_S):
                    message = await self._ws.receive()
            except TimeoutError:
                return
            if message.type is WSMsgType.TEXT:
                yield decode_stream_message(message.data)
            elif message.type is WSMsgType.BINARY:
                raise RemoteProtocolError("a binary message; allowed: text")
            elif message.type is WSMsgType.ERROR or message.type in CLOSED:
                return
