"""Serves chat and text completions of OpenAI's REST API."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Annotated, Any

import msgspec
from aiohttp import web as aioweb
from msgspec import Meta, Struct

from core.errors import EarshotError, RequestError
from core.http.client_connection import ClientDisconnected, while_connected
from core.http.routes import JSON
from core.ports import Clock
from pipeline.tools.calls.arguments import is_too_deep
from serving.remote.models import RemoteModels
from web.openai.chat.completion import ChatAnswer, DeltaPart, forwarded_body
from web.openai.chat.fields import ChatFields, decode_chat, private_texts
from web.openai.chat.models import ChatModel, ChatModels, LatencyMarks
from web.openai.json_body import decode_json, read_json
from web.openai.limits import RequestLimit
from web.openai.transcriptions.sse import SseResponse, error_event

CHAT, TEXT = "/chat/completions", "/completions"
"Paths of a model server."


class CompletionFields(Struct, frozen=True, kw_only=True):
    """Body of `POST /v1/completions`. The model's server gets all fields."""

    model: Annotated[str, Meta(description="A language model of `GET /v1/models`.")]
    prompt: str | list[str | int | list[int]]
    stream: bool | None = None


class ChatDoor:
    """Handles the requests of chat clients."""

    def __init__(
        self, models: ChatModels, clock: Clock, limit: RequestLimit, remote: RemoteModels
    ) -> None:
        self.models, self._clock, self._limit, self._remote = models, clock, limit, remote

    @asynccontextmanager
    async def place(self, model: ChatModel) -> AsyncIterator[None]:
        """Holds a place for one request. A model of another server has places of its own, so that a
        slow one does not hold up the others. Raises OverloadedError too_many_requests, draining;
        EngineTimeout."""
        if remote := self._remote.get("llm", model.name):
            with remote.place():
                yield
        else:
            async with self._limit.take():
                yield

    async def chat_completions(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `POST /v1/chat/completions`. Raises RequestError, OverloadedError,
        EngineError."""
        marks, sent = LatencyMarks.start(), await read_json(request)
        fields = decode_chat(sent)
        model = self.models.find(fields.model)
        self.models.check(model, fields)
        async with self.place(model):
            if model.server is None:
                work = self._answer(request, model, fields, marks)
            else:
                work = self._forward(
                    request, model, CHAT, _object(sent), private_texts(fields), marks
                )
            return await while_connected(request, work)

    async def completions(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `POST /v1/completions`. Raises RequestError unsupported_operation for a model
        that answers only conversations, and as `chat_completions`."""
        marks, sent = LatencyMarks.start(), await read_json(request)
        fields = decode_json(sent, CompletionFields)
        model = self.models.find(fields.model)
        if model.server is None:
            raise RequestError(
                f"The model {fields.model[:64]!r} answers conversations only: use"
                " /v1/chat/completions, or a model that runs in a model server (engine openai,"
                " llama_cpp or vllm).",
                code="unsupported_operation",
                param="model",
            )
        prompt = fields.prompt
        private = [prompt] if isinstance(prompt, str) else [p for p in prompt if isinstance(p, str)]
        async with self.place(model):
            work = self._forward(request, model, TEXT, _object(sent), private, marks)
            return await while_connected(request, work)

    async def _forward(
        self,
        request: aioweb.Request,
        model: ChatModel,
        path: str,
        body: dict[str, Any],
        private: list[str],
        marks: LatencyMarks,
    ) -> aioweb.StreamResponse:
        texts = self.models.forward(model, path, forwarded_body(body), private, marks)
        if body.get("stream"):
            return await _send_texts(request, texts, marks)
        async with aclosing(texts):
            whole = "".join([text async for text in texts])
        return aioweb.Response(text=whole, content_type=JSON, headers=marks.headers(is_whole=True))

    async def _answer(
        self, request: aioweb.Request, model: ChatModel, fields: ChatFields, marks: LatencyMarks
    ) -> aioweb.StreamResponse:
        answer = ChatAnswer.begin(fields, int(self._clock.wall().timestamp()))
        if fields.stream:
            chunks = self._chunks(model, answer, marks)
            return await _send_texts(request, chunks, marks)
        async with aclosing(self.models.deltas(model, fields, marks)) as deltas:
            async for delta in deltas:
                answer.push(delta)
                if answer.stops.is_over:
                    break
        answer.end()
        return aioweb.Response(
            body=msgspec.json.encode(answer.whole()),
            content_type=JSON,
            headers=marks.headers(is_whole=True),
        )

    async def _chunks(
        self, model: ChatModel, answer: ChatAnswer, marks: LatencyMarks
    ) -> AsyncGenerator[str, None]:
        """Yields the data of the events of a streamed answer."""
        has_begun = False
        async with aclosing(self.models.deltas(model, answer.fields, marks)) as deltas:
            async for delta in deltas:
                if not has_begun:
                    has_begun = True
                    yield _text(answer.chunk(DeltaPart(role="assistant", content="")))
                if (part := answer.push(delta)) is not None:
                    yield _text(answer.chunk(part))
                if answer.stops.is_over:
                    break
        if (part := answer.end()) is not None:
            yield _text(answer.chunk(part))
        yield _text(answer.chunk(DeltaPart(), answer.finish_reason))
        if answer.fields.has_usage_chunk:
            yield _text(answer.usage_chunk())
        yield "[DONE]"


async def _send_texts(
    request: aioweb.Request, texts: AsyncGenerator[str, None], marks: LatencyMarks
) -> aioweb.StreamResponse:
    """Sends each text as the data of an event. An error after the first one is an event, too."""
    events = SseResponse(request)
    try:
        async with aclosing(texts):
            async for text in texts:
                if not events.has_begun:
                    events.set_headers(marks.headers())
                await events.send_text(text)
    except ClientDisconnected:
        raise
    except EarshotError as error:
        if not events.has_begun:
            raise
        await events.send(error_event(error))
    return await events.end(with_done_line=False)


def _text(event: Struct) -> str:
    return msgspec.json.encode(event).decode()


def _object(body: bytes) -> dict[str, Any]:
    """Returns the body as it is. Raises RequestError invalid_value if it has too many levels."""
    found = msgspec.json.decode(body, type=dict[str, Any])
    if is_too_deep(found):
        raise RequestError("The body has too many levels.", code="invalid_value")
    return found
