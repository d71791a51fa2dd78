"""Wyoming's framing, with limits: a JSON line, then JSON data and a payload of the announced
lengths.

The event classes are those of the library `wyoming` (https://github.com/OHF-Voice/wyoming). Its own
reader accepts any length that a peer announces.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

import msgspec
from wyoming.error import Error
from wyoming.event import Event, Eventable, async_write_event

from core.errors import EarshotError, RemoteProtocolError

MAX_HEADER_BYTES = 64 * 1024
"Limit of the JSON line; the library's own clients have the same limit."

MAX_DATA_BYTES = 256 * 1024
"""Limit of the JSON data after the line: the longest allowed text, with each character escaped.
Decoding it takes at most 13 ms, in which it blocks the event loop."""

MAX_PAYLOAD_BYTES = 1024 * 1024
"Limit of one event's audio: half a minute at 16 kHz. Satellites send a few milliseconds."

MAX_REASON_CHARS = 200
"Limit of an error about wrong JSON: its path can be long."

LINE_TIMEOUT_S = 10.0
"Longest time from the first byte of a header line to its end: clients write it in one piece."

PAUSE_TIMEOUT_S = 30.0
"Longest pause between two pieces of data or payload."

SEND_TIMEOUT_S = 10.0
"A client that takes nothing for this long counts as gone."

LINGER_S = 2.0
"Time that a refused client has to read the error and close the connection."


class _EventHeader(msgspec.Struct, frozen=True):
    type: str
    data: dict[str, Any] | None = None
    data_length: int | None = None
    payload_length: int | None = None


_T = TypeVar("_T")

_HEADER = msgspec.json.Decoder(_EventHeader)
_DATA = msgspec.json.Decoder(dict[str, Any])


class WyomingStream:
    """Events of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sending = asyncio.Lock()
        self._idle: asyncio.Timeout | None = None
        "Timeout of the read in progress."
        self._idle_s = 0.0
        self._has_begun = False
        "Part of the event was received: sending does not extend its time limit."

    async def read(self, idle_s: float) -> Event | None:
        """Returns the next event.

        Returns None at the end of the stream, also in the middle of an event, and when nothing was
        received or sent for `idle_s` seconds: the client is silent while it plays long speech. An
        event that has begun must continue within its own limits.

        Yields to the event loop first. Otherwise a client that writes without pause would block
        other tasks, since neither reading nor sending would ever have to wait.

        Raises RemoteProtocolError.
        """
        await asyncio.sleep(0)
        self._idle_s, self._has_begun = idle_s, False
        try:
            async with asyncio.timeout(idle_s) as self._idle:
                return await self._read()
        except TimeoutError:
            return None
        finally:
            self._idle = None

    async def _read(self) -> Event | None:
        try:
            line = await self._reader.read(1)
            self._begin_deadline(LINE_TIMEOUT_S)
            if line != b"\n":
                line += await self._reader.readline()
            if not line.endswith(b"\n"):
                return None
            header = _decoded(_HEADER, line, "the header line")
            data = header.data or {}
            if size := _length("data_length", header.data_length, MAX_DATA_BYTES):
                more = _decoded(_DATA, await self._exactly(size), "data")
                data = {**data, **more}
            size = _length("payload_length", header.payload_length, MAX_PAYLOAD_BYTES)
            payload = await self._exactly(size) if size else None
        except ValueError:  # readline: the line is longer than the reader's limit
            why = f"a header line of more than {MAX_HEADER_BYTES} bytes"
            raise RemoteProtocolError(why) from None
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return Event(header.type, data, payload)

    async def _exactly(self, size: int) -> bytes:
        """Reads exactly `size` bytes. Raises IncompleteReadError."""
        pieces: list[bytes] = []
        left = size
        while left:
            self._begin_deadline(PAUSE_TIMEOUT_S)
            piece = await self._reader.read(left)
            if not piece:
                raise asyncio.IncompleteReadError(b"".join(pieces), size)
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _begin_deadline(self, wait_s: float) -> None:
        """Sets the time limit for the next bytes of the event."""
        self._has_begun = True
        self._extend_deadline(wait_s)

    def _extend_deadline(self, wait_s: float) -> None:
        if self._idle is not None and not self._idle.expired():
            self._idle.reschedule(asyncio.get_running_loop().time() + wait_s)

    async def send(self, *events: Eventable) -> None:
        """Sends events. Raises ConnectionError when the client is gone or takes nothing any
        more."""
        await self.send_raw([event.event() for event in events])

    async def send_raw(self, events: Sequence[Event]) -> None:
        """Sends events of the library. Raises ConnectionError."""
        async with self._sending:
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    for event in events:
                        await async_write_event(event, self._writer)
            except TimeoutError:
                self.abort()
                raise ConnectionAbortedError("the client does not read its data") from None
        if not self._has_begun:
            self._extend_deadline(self._idle_s)

    async def refuse(self, error: EarshotError) -> None:
        """Sends an error and ends the stream.

        Reads what the client still sends: closing with unread bytes resets the connection, and many
        clients would never see the error.
        """
        with suppress(ConnectionError, TimeoutError):
            await self.send(Error(text=str(error), code=error.code))
            if not self._writer.is_closing():
                self._writer.write_eof()
            async with asyncio.timeout(LINGER_S):
                while await self._reader.read(MAX_HEADER_BYTES):
                    pass

    async def close(self) -> None:
        """Closes the connection after the client received everything, or after a timeout."""
        self._writer.close()
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._writer.wait_closed()

    def abort(self) -> None:
        """Closes the connection at once."""
        self._writer.transport.abort()


def _decoded(decoder: msgspec.json.Decoder[_T], data: bytes, part: str) -> _T:
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        why = str(error)[:MAX_REASON_CHARS]
        raise RemoteProtocolError(f"{part} is not valid Wyoming: {why}") from None


def _length(name: str, length: int | None, limit: int) -> int:
    if length is None:
        return 0
    if not 0 <= length <= limit:
        raise RemoteProtocolError(f"{name} is {length}; allowed: 0 to {limit}")
    return length
