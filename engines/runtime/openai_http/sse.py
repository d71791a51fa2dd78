"""Parser for server-sent events: takes bytes in any split and returns the data of each event. It
does no I/O, and its memory is bounded.

https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
"""

from collections.abc import Iterator

from core.errors import RemoteProtocolError

MAX_EVENT_BYTES = 1024 * 1024
"Largest event. A token takes some 300 bytes, and a complete tool call some kilobytes."


class SseReader:
    """Collects the data of server-sent events. It skips names, ids and retry times of events, which
    OpenAI's API does not use."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._data: list[str] = []
        self._data_bytes = 0
        self._ended_with_cr = False

    def receive_data(self, data: bytes) -> Iterator[str]:
        """Yields the data of the events that `data` completes. Raises RemoteProtocolError; the
        stream cannot be used after that."""
        if self._ended_with_cr and data.startswith(b"\n"):
            data = data[1:]
        if data:
            self._ended_with_cr = data.endswith(b"\r")
        self._buffer += data
        *lines, rest = self._buffer.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        self._buffer = bytearray(rest)
        for line in lines:
            if line:
                self._field(line)
            elif self._data:
                event, self._data, self._data_bytes = "\n".join(self._data), [], 0
                yield event
        self._check(len(self._buffer))

    def end(self) -> str | None:
        """Returns the last event if the server ended the stream without the empty line after it."""
        if self._buffer:
            self._field(self._buffer)
            self._buffer.clear()
        data, self._data = self._data, []
        return "\n".join(data) or None

    def _field(self, line: bytes | bytearray) -> None:
        """Takes one line, which is a field of the current event."""
        name, _, value = line.partition(b":")
        if name != b"data":
            return
        self._data_bytes += len(value)
        self._check(self._data_bytes)
        try:
            self._data.append(value.removeprefix(b" ").decode())
        except UnicodeDecodeError as exc:
            raise RemoteProtocolError("an event that is not UTF-8") from exc

    def _check(self, size: int) -> None:
        if size > MAX_EVENT_BYTES:
            raise RemoteProtocolError(f"an event of more than {MAX_EVENT_BYTES} bytes")
