"""Requests that no client library would send."""

import asyncio

from tests.web.openai.transcriptions.harness import TRANSCRIPTIONS, Server

PART = b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n'


async def raw(server: Server, *pieces: bytes) -> bytes:
    """What is answered to bytes that no client library would send."""
    url = server.client._base_url
    assert url is not None
    reader, writer = await asyncio.open_connection(url.host, url.port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await reader.readuntil(b"\r\n\r\n") + await reader.read(1000)
    finally:
        writer.close()


def head(**headers: str) -> bytes:
    sent = {"Host": "127.0.0.1", "Content-Type": "multipart/form-data; boundary=b", **headers}
    lines = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in sent.items())
    return f"POST {TRANSCRIPTIONS} HTTP/1.1\r\n{lines}\r\n".encode()
