"""Bytes to somebody who may take them slowly, or not at all."""

import asyncio
from typing import Protocol

from core.errors import RequestError
from core.http.connected import ClientDisconnected

STALL_S = 120.0
"""Of a player that takes nothing: longer than it plays what lies in the sockets' buffers, up to
2 MB, before it makes room. Meanwhile it holds a voice."""


class ResponseWriter(Protocol):
    """A response, as far as this needs it."""

    async def write(self, data: bytes) -> None:
        """Waits while the peer has enough."""
        ...


async def send(response: ResponseWriter, data: bytes) -> None:
    """Raises ClientGone; RequestError download_stalled when nothing is taken for STALL_S."""
    try:
        async with asyncio.timeout(STALL_S):
            await response.write(data)
    except ConnectionError as exc:
        raise ClientDisconnected from exc
    except TimeoutError as exc:
        raise RequestError(f"nothing was taken for {STALL_S:g} s", code="download_stalled") from exc
