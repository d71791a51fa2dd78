"""Reads one streamed chat completion from its HTTP response."""

import re
from collections import deque
from collections.abc import Mapping

import aiohttp

from core.conversation.usage import RateLimit, RateLimits
from engines.llm.openai.chunks import DONE, ChatCompletionChunk, read_chunk
from engines.runtime.openai_http.client import read_limited
from engines.runtime.openai_http.sse import SseReader

QUOTAS = ("requests", "tokens")
"Quotas whose headers are read."

_COUNT = re.compile(r"[0-9]{1,15}")
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_PIECE = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|us|d|h|m|s)")
_UNITS_S = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}


def read_rate_limits(headers: Mapping[str, str]) -> RateLimits | None:
    """Returns the limits in the headers; None if there are none. A limit is returned only if all
    three of its values are present and valid. `headers`: a mapping that ignores case.
    https://platform.openai.com/docs/guides/rate-limits#rate-limits-in-headers"""
    limits = tuple(
        limit for limit in (_limit(headers, name) for name in QUOTAS) if limit is not None
    )
    return RateLimits(limits) if limits else None


def reset_s(header: str) -> float | None:
    """Returns the seconds that a reset header gives: `1s`, `6m0s`, `120ms`, `1h2m3.5s`, or a number
    without a unit. None for any other format, such as the dates of some services."""
    if _SECONDS.fullmatch(header):
        return float(header)
    pieces = _PIECE.findall(header)
    if not pieces or "".join(map("".join, pieces)) != header:
        return None
    return float(sum(float(number) * _UNITS_S[unit] for number, unit in pieces))


def _limit(headers: Mapping[str, str], name: str) -> RateLimit | None:
    limit, remaining, reset = (
        headers.get(f"x-ratelimit-{quantity}-{name}", "").strip()
        for quantity in ("limit", "remaining", "reset")
    )
    left_s = reset_s(reset)
    if left_s is None or not (_COUNT.fullmatch(limit) and _COUNT.fullmatch(remaining)):
        return None
    return RateLimit(name, int(limit), int(remaining), left_s)


class ChatCompletionStream:
    """Reads the chunks of one response. A `ResponseReader`.

    If the headers have rate limits, these are the first item.
    """

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self._reader = SseReader()
        self._events: deque[str] = deque()
        self._buffered: list[ChatCompletionChunk | None] = []
        "The first chunk, or None for the end, while it waits behind the rate limits."
        self._is_over = False
        self._is_finished = False
        "True after a chunk that had a `finish_reason`: it was the last one with text."

    async def first(self) -> ChatCompletionChunk | RateLimits | None:
        """Waits for the first chunk with content, and returns the rate limits or that chunk."""
        while (chunk := await self._next_chunk()) is not None and chunk.is_empty:
            pass  # some servers send an empty chunk before they compute the first token
        if (limits := read_rate_limits(self._response.headers)) is None:
            return chunk
        self._buffered.append(chunk)
        return limits

    async def next(self) -> ChatCompletionChunk | None:
        """Returns the next chunk; None at the end.

        Raises RemoteProtocolError for data that is not a chunk, and aiohttp's errors, also for a
        stream that breaks off.
        """
        return self._buffered.pop() if self._buffered else await self._next_chunk()

    async def _next_chunk(self) -> ChatCompletionChunk | None:
        if self._response.content_type == "application/json":
            return await self._complete_answer()
        data = await self._next_event()
        if data is None or data.strip() == DONE:
            if data is None and not self._is_finished:
                raise aiohttp.ClientPayloadError
            return None
        chunk = read_chunk(data)
        self._is_finished |= any(choice.finish_reason for choice in chunk.choices or ())
        return chunk

    async def _next_event(self) -> str | None:
        """Returns the data of the next event; None at the end."""
        while not self._events and not self._is_over:
            received = await self._response.content.readany()
            self._events.extend(self._reader.receive_data(received))
            if not received:
                self._is_over = True
                if (last := self._reader.end()) is not None:
                    self._events.append(last)
        return self._events.popleft() if self._events else None

    async def _complete_answer(self) -> ChatCompletionChunk | None:
        """Returns the complete answer of a server that does not stream, as one chunk; then None."""
        if self._is_over:
            return None
        self._is_over = True
        return read_chunk((await read_limited(self._response)).decode(errors="replace"))
