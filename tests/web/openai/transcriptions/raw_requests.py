"""Requests that no client library would send."""

import asyncio
import re
from contextlib import suppress

from tests.web.openai.transcriptions.harness import TRANSCRIPTIONS, Server

PART = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n'


async def raw(server: Server, *pieces: bytes) -> bytes:
    """Returns the response to bytes that no client library would send.

    It reads while it writes: a server that refuses the request may answer and close before it has
    read everything.
    """
    url = server.client._base_url
    assert url is not None
    reader, writer = await asyncio.open_connection(url.host, url.port)

    async def write() -> None:
        with suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()

    writing = asyncio.create_task(write())
    try:
        header = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)^Content-Length: (\d+)", header, re.MULTILINE)
        assert length, header
        return header + await reader.readexactly(int(length[1]))
    finally:
        writing.cancel()
        writer.close()


def head(**headers: str) -> bytes:
    sent = {"Host": "127.0.0.1", "Content-Type": "multipart/form-data; boundary=b", **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in sent.items())
    return f"POST {TRANSCRIPTIONS} HTTP/1.1\r\n{lines}\r\n".encode()
