"""Passes the answers of an OpenAI-compatible server on unchanged."""

from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

import aiohttp

from core.conversation.usage import TokenUsage
from core.errors import EarshotError, EngineError, RemoteProtocolError, RequestError
from engines.base import ToolCall
from engines.llm.openai.chunks import DONE, read_chunk, usage_of
from engines.llm.openai.context_length import is_length_refusal
from engines.llm.openai.tool_calls import ToolCallAssembler
from engines.llm.reasoning_filter import ReasoningFilter
from engines.runtime.openai_http.errors import OpenAiHttpError
from engines.runtime.openai_http.sse import SseReader

BAD_REQUEST_STATUSES = (400, 404, 409, 413, 422)
"HTTP statuses for which the request is at fault, and not the server."


class ForwardedEvents:
    """Reads the data of one response's events, up to `[DONE]`. A `ResponseReader`."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response, self._reader = response, SseReader()
        self._events: deque[str] = deque()
        self._is_over = False

    async def first(self) -> str | None:
        """Returns the data of the first event."""
        return await self.next()

    async def next(self) -> str | None:
        """Returns the data of the next event; None after `[DONE]`.

        Raises RemoteProtocolError for an event that is too long or not text, and aiohttp's
        ClientPayloadError for a stream that stops without `[DONE]`.
        """
        if self._is_over:
            return None
        while not self._events:
            received = await self._response.content.readany()
            if not received:
                raise aiohttp.ClientPayloadError
            self._events.extend(self._reader.receive_data(received))
        data = self._events.popleft()
        self._is_over = data.strip() == DONE
        return data


def forward_error(error: OpenAiHttpError, private_texts: Sequence[str]) -> EarshotError:
    """Returns the error to raise: a RequestError if the request is at fault.

    private_texts: texts of the request, which the error must not repeat.
    """
    if error.status not in BAD_REQUEST_STATUSES:
        return error.public_error(private_texts)
    code = "context_length_exceeded" if is_length_refusal(error) else "refused_by_model"
    return RequestError(error.public_detail(private_texts), code=code)


async def deltas_of_events(
    name: str, events: AsyncGenerator[str, None]
) -> AsyncGenerator[str | ToolCall | TokenUsage, None]:
    """Yields the parts of an answer from forwarded events: text without thoughts, complete tool
    calls, and the number of tokens.

    name: name of the model in errors. Raises EngineError for an answer that breaks off or is
    malformed.
    """
    reasoning, calls = ReasoningFilter(), ToolCallAssembler()
    usage: TokenUsage | None = None
    try:
        async with aclosing(events):
            async for data in events:
                if data.strip() == DONE:
                    break
                chunk = read_chunk(data)
                if chunk.error_message:
                    raise EngineError("llm", name, "its server failed in the middle of an answer")
                usage = usage_of(chunk) or usage
                for choice in chunk.choices or ():
                    calls.push(choice.addition.tool_calls or ())
                    if text := reasoning.push(choice.addition.text):
                        yield text
        if text := reasoning.end():
            yield text
        for call in calls.calls():
            yield call
    except RemoteProtocolError as exc:
        raise EngineError("llm", name, f"its server sent {exc}") from exc
    if usage is not None:
        yield usage
