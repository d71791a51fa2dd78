"""Requests to a server process, as Home Assistant sends them."""

import asyncio

from aiohttp import ClientSession, ClientTimeout, FormData

KEY = "a-key-of-the-tests-0123456789"


def asked(method: str, url: str, data: FormData | None = None, **query: str) -> tuple[int, bytes]:
    """Returns status and body. The client turns `user:password@` into an Authorization header."""

    async def ask() -> tuple[int, bytes]:
        async with (
            ClientSession(timeout=ClientTimeout(20)) as client,
            client.request(method, url, data=data, params=query) as response,
        ):
            return response.status, await response.read()

    return asyncio.run(ask())


def heard(url: str, sound: bytes) -> str:
    """Returns our own recogniser's transcript of an answer."""
    data = FormData({"model": "default", "response_format": "text", "language": "en"})
    data.add_field("file", sound, filename="answer")
    status, text = asked("POST", f"{url}/v1/audio/transcriptions", data)
    assert status == 200, text
    return text.decode().lower()
