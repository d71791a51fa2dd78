"""Sends answers of another server on to a client as they come."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

import msgspec
from aiohttp import hdrs
from aiohttp import web as aioweb

from core.errors import EarshotError
from core.http.client_connection import ClientDisconnected
from core.http.streaming import HEADERS, send
from serving.remote.models import AnswerPart
from web.openai.transcriptions.sse import error_event

EVENT_STREAM = HEADERS[hdrs.CONTENT_TYPE]
EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")


async def send_answer(
    request: aioweb.Request, parts: AsyncGenerator[AnswerPart, None]
) -> aioweb.StreamResponse:
    """Sends each part of an answer at once.

    An error before the first part becomes a status. Between two events it is an event, too.
    Otherwise the connection is cut, so that half a file is not taken for a whole one. Raises as
    `RemoteModel.stream`, and ClientDisconnected.
    """
    response = aioweb.StreamResponse()
    is_between_events = False
    try:
        async with aclosing(parts):
            async for part in parts:
                if not response.prepared:
                    response.headers.update(_headers(part.content_type))
                    await response.prepare(request)
                await send(response, part.data)
                is_between_events = _is_event_stream(part.content_type) and part.data.endswith(
                    EVENT_ENDS
                )
    except ClientDisconnected:
        raise
    except EarshotError as error:
        if not is_between_events:
            raise
        await send(response, b"data: " + msgspec.json.encode(error_event(error)) + b"\n\n")
    except ConnectionError as exc:
        raise ClientDisconnected from exc
    await response.write_eof()
    return response


def _headers(content_type: str) -> dict[str, str]:
    events = HEADERS if _is_event_stream(content_type) else {}
    return {"Cache-Control": "no-store", **events, hdrs.CONTENT_TYPE: content_type}


def _is_event_stream(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == EVENT_STREAM
