"""Serves the Responses operations of OpenAI's REST API."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

import msgspec
from aiohttp import web as aioweb

from core.errors import EarshotError
from core.http.client_connection import ClientDisconnected, while_connected
from core.http.routes import JSON
from core.ports import Clock
from web.openai.chat.door import ChatDoor
from web.openai.chat.fields import ChatFields
from web.openai.chat.models import ChatModel, ChatModels, LatencyMarks
from web.openai.json_body import read_json
from web.openai.responses.answer import Event, ResponseAnswer
from web.openai.responses.fields import (
    Messages,
    ResponseFields,
    chat_body,
    chat_fields,
    decode_response,
    input_messages,
)
from web.openai.responses.store import ResponseStore
from web.openai.transcriptions.sse import SseResponse


@dataclass(frozen=True, slots=True)
class ResponseWork:
    """One request, checked, with the conversation that it continues."""

    fields: ResponseFields
    messages: Messages
    chat: ChatFields
    body: dict[str, object]
    model: ChatModel
    marks: LatencyMarks


class ResponsesDoor:
    """Handles the requests of `/v1/responses`. `chat`: its limit of requests counts here, too."""

    def __init__(self, chat: ChatDoor, models: ChatModels, clock: Clock) -> None:
        self._chat, self._models, self._clock = chat, models, clock
        self._store = ResponseStore()

    async def create(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `POST /v1/responses`. Raises RequestError, OverloadedError, EngineError."""
        marks = LatencyMarks.start()
        fields = decode_response(await read_json(request))
        earlier: Messages = ()
        if fields.previous_response_id is not None:
            previous = self._store.get(fields.previous_response_id, "previous_response_id")
            earlier = previous.messages
        messages = (*earlier, *input_messages(fields, self._store.item))
        body = chat_body(fields, messages)
        chat, model = chat_fields(body), self._models.find(fields.model)
        self._models.check(model, chat)
        work = ResponseWork(fields, messages, chat, body, model, marks)
        async with self._chat.place(model):
            answer = self._stream if fields.stream else self._whole
            return await while_connected(request, answer(request, work))

    async def get(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `GET /v1/responses/{response}`. Raises NotFound response_not_found."""
        return _json(self._store.get(request.match_info["response"]).body)

    async def delete(self, request: aioweb.Request) -> aioweb.Response:
        """Handles `DELETE /v1/responses/{response}`. Raises NotFound response_not_found."""
        response_id = request.match_info["response"]
        self._store.forget(response_id)
        return _json({"id": response_id, "object": "response", "deleted": True})

    async def _whole(self, request: aioweb.Request, work: ResponseWork) -> aioweb.StreamResponse:
        answer = self._answer(work)
        async with aclosing(self._events(work, answer)) as events:
            async for _ in events:
                pass
        return _json(answer.body(), work.marks.headers(is_whole=True))

    async def _stream(self, request: aioweb.Request, work: ResponseWork) -> aioweb.StreamResponse:
        """Sends the events. An error after the first piece of the answer is an event, too."""
        sent, answer = SseResponse(request), self._answer(work)
        try:
            async with aclosing(self._events(work, answer)) as events:
                async for event in events:
                    if not sent.has_begun:
                        sent.set_headers(work.marks.headers())
                    await _send(sent, event)
        except ClientDisconnected:
            raise
        except EarshotError as error:
            if not sent.has_begun:
                raise
            await _send(sent, answer.fail(error))
        return await sent.end(with_done_line=False)

    def _answer(self, work: ResponseWork) -> ResponseAnswer:
        return ResponseAnswer(work.fields, int(self._clock.wall().timestamp()))

    async def _events(
        self, work: ResponseWork, answer: ResponseAnswer
    ) -> AsyncGenerator[Event, None]:
        """Yields the events of the response, and keeps it at its end. The first events wait for the
        first piece of the answer, so that an error before it becomes a status."""
        has_begun = False
        deltas = self._models.all_deltas(work.model, work.chat, work.body, work.marks)
        async with aclosing(deltas):
            async for delta in deltas:
                if not has_begun:
                    has_begun = True
                    for event in answer.begin():
                        yield event
                for event in answer.push(delta):
                    yield event
        for event in () if has_begun else answer.begin():
            yield event
        last = list(answer.end())
        if work.fields.store is not False:
            self._keep(work, answer)
        for event in last:
            yield event

    def _keep(self, work: ResponseWork, answer: ResponseAnswer) -> None:
        body, messages = answer.body(), (*work.messages, *answer.messages())
        size_bytes = len(msgspec.json.encode(body)) + len(msgspec.json.encode(messages))
        self._store.keep(answer.id, body, messages, size_bytes)


async def _send(sent: SseResponse, event: Event) -> None:
    await sent.send_text(msgspec.json.encode(event).decode(), str(event["type"]))


def _json(body: object, headers: dict[str, str] | None = None) -> aioweb.Response:
    return aioweb.Response(body=msgspec.json.encode(body), content_type=JSON, headers=headers)
