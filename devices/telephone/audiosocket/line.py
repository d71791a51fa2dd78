"""The line of a call over AudioSocket: its messages on a TCP connection."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import suppress
from uuid import UUID

from core.audio import Pcm
from core.errors import RemoteProtocolError
from devices.telephone.audiosocket.framing import (
    MAX_PAYLOAD_BYTES,
    AudioSocketDecoder,
    AudioSocketMessage,
    CallId,
    Dtmf,
    HangUp,
    OtherMessage,
    PeerError,
    Slin,
    encode_message,
)
from devices.telephone.call import IDLE_S, LineKey, LineSound
from media.pcm import from_bytes, to_bytes

logger = logging.getLogger(__name__)

READ_BYTES = MAX_PAYLOAD_BYTES
"Most bytes that are read at once."

UUID_TIMEOUT_S = 5.0
"Limit for the first message. Asterisk sends it as soon as it is connected."

LINGER_S = 2.0
"Limit for the peer to close the connection after a hang-up of ours."

MAX_UNSENT_BYTES = 16_000
"""Sound that may wait for a peer that does not read: one second. Then sending waits, and the call
ends if that lasts for SEND_TIMEOUT_S."""


class AudioSocketLine:
    """A `TelephoneLine` over TCP.

    Asterisk passes on each frame as it comes, so none is sent ahead. It gets silence, too, because
    phones and providers hang up where no packet comes.
    """

    buffer = None
    "Asterisk has none: see `TelephoneLine`."

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = AudioSocketDecoder()
        self._incoming = self._messages()
        self._is_over = False
        "The peer has hung up: nothing may be sent any more."
        writer.transport.set_write_buffer_limits(high=MAX_UNSENT_BYTES)

    async def read_uuid(self) -> UUID | None:
        """Reads the first message. None: the peer has left. Raises RemoteProtocolError."""
        try:
            async with asyncio.timeout(UUID_TIMEOUT_S):
                message = await anext(self._incoming, None)
        except TimeoutError:
            raise RemoteProtocolError(f"no UUID within {UUID_TIMEOUT_S:.0f} s") from None
        if message is None or isinstance(message, CallId):
            return None if message is None else message.uuid
        raise RemoteProtocolError("the first message of a call must be its UUID (0x01)")

    async def receive(self) -> AsyncIterator[LineSound | LineKey]:
        """See `TelephoneLine`."""
        async for message in self._incoming:
            match message:
                case Slin(pcm=pcm):
                    yield LineSound(from_bytes(pcm))
                case Dtmf(digit=digit):
                    yield LineKey(digit)
                case HangUp():
                    break
                case PeerError(code=code):
                    logger.info("! telephone: AudioSocket reported the error %s", code.hex())
                    break
                case CallId():
                    raise RemoteProtocolError("a second UUID (0x01) in one call")
                case OtherMessage(kind=kind):
                    logger.debug("< AudioSocket message of unknown kind %#04x", kind)
        self._is_over = True

    async def send(self, pcm: Pcm) -> None:
        """See `TelephoneLine`."""
        self._write(encode_message(Slin(to_bytes(pcm))))
        await self._writer.drain()

    async def hang_up(self) -> None:
        """Says that the call is over, and closes the connection.

        Reads what the peer still sends: closing with unread bytes resets the connection, and the
        peer would not see that the call is over.
        """
        with suppress(ConnectionError, TimeoutError):
            if not self._is_over:
                self._write(encode_message(HangUp()))
                self._writer.write_eof()
                async with asyncio.timeout(LINGER_S):
                    while await self._reader.read(READ_BYTES):
                        pass
            self._writer.close()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._writer.transport.abort()

    def _write(self, data: bytes) -> None:
        """Raises ConnectionError."""
        if self._writer.is_closing():
            raise ConnectionResetError("the connection is closed")
        self._writer.write(data)

    async def _messages(self) -> AsyncIterator[AudioSocketMessage]:
        """Yields messages until the peer has left, or sends nothing for IDLE_S."""
        while data := await self._read():
            for message in self._decoder.receive_data(data):
                yield message

    async def _read(self) -> bytes:
        """Returns bytes; empty: the peer has left, or is silent for too long."""
        await asyncio.sleep(0)  # else a flood would keep all other tasks from running
        try:
            async with asyncio.timeout(IDLE_S):
                return await self._reader.read(READ_BYTES)
        except (ConnectionError, TimeoutError):
            return b""
