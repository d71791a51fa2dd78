"""Sends a publication's transcript feed as server-sent events (WHATWG HTML, 9.2)."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress

from aiohttp import web as aioweb

from core.ports import Metrics
from core.queues import Outbox
from signaling.whip.transcript_feed import FeedEntry

logger = logging.getLogger(__name__)

HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # nginx would buffer the events
}

HEARTBEAT_S = 15.0
"""Interval of comments on a silent stream, in seconds. Proxies end a silent answer after 30 to 60
s, and a write shows that a reader has gone."""

STALL_S = 10.0
"""Time limit for one write, in seconds. Before a write blocks, some 2 MB in the sockets' buffers
are full."""

LAGGING = "reader_lagging"
"Error code in the metrics."


def last_event_id(headers: Mapping[str, str]) -> int:
    """Returns the number of the last event that a returning reader has; 0 if it sent no valid
    number."""
    text = headers.get("Last-Event-ID", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else 0


def server_sent(entry: FeedEntry) -> bytes:
    """Encodes one event. JSON has no raw line breaks, so one `data` line is enough."""
    return f"event: {entry.kind}\nid: {entry.number}\ndata: {entry.text}\n\n".encode()


async def stream(
    request: aioweb.Request, unread: Outbox[FeedEntry], metrics: Metrics
) -> aioweb.StreamResponse:
    """Streams events until the feed ends. A reader that is too slow is disconnected."""
    response = aioweb.StreamResponse(headers=HEADERS)
    await response.prepare(request)
    is_too_slow = is_gone = False
    try:
        await _write_all(response, unread)
    except* ConnectionError:
        is_gone = True  # most streams end this way
    except* TimeoutError:
        is_too_slow = True
    if is_too_slow or unread.overflowed:
        logger.warning("! disconnected a reader of %s that was too slow", request.path)
        metrics.count("earshot_errors", code=LAGGING)
        if request.transport is not None:
            request.transport.abort()  # half an answer must not look like a whole one
    elif not is_gone:
        with suppress(ConnectionError):
            await response.write_eof()
    return response


async def _write_all(response: aioweb.StreamResponse, unread: Outbox[FeedEntry]) -> None:
    async with asyncio.TaskGroup() as tasks:
        heartbeat = tasks.create_task(_send_heartbeats(response), name="whip-heartbeat")
        async for entry in unread:
            async with asyncio.timeout(STALL_S):
                await response.write(server_sent(entry))
        heartbeat.cancel()


async def _send_heartbeats(response: aioweb.StreamResponse) -> None:
    while True:
        await asyncio.sleep(HEARTBEAT_S)
        async with asyncio.timeout(STALL_S):
            await response.write(b": still here\n\n")
