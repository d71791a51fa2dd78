"""Serves the part of Ollama's REST API that chat clients use."""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from time import perf_counter

import msgspec
from aiohttp import web as aioweb

from core.errors import EarshotError
from core.http.client_connection import ClientDisconnected, while_connected
from core.http.streaming import send
from core.ports import Clock
from web.ollama.fields import (
    OllamaChatFields,
    OllamaGenerateFields,
    chat_fields,
    chat_of,
    generate_as_chat,
    model_name,
)
from web.ollama.models import NDJSON, Line, json_response
from web.openai.chat.completion import ChatAnswer
from web.openai.chat.door import ChatDoor
from web.openai.chat.fields import ChatFields
from web.openai.chat.models import ChatModel, LatencyMarks
from web.openai.json_body import decode_json

Shape = Callable[[str, Sequence[Line]], Line]
"Returns the part of a line that holds the text and the calls."


@dataclass(frozen=True, slots=True)
class OllamaWork:
    """One request, checked."""

    model: ChatModel
    chat: ChatFields
    body: dict[str, object]
    shape: Shape
    marks: LatencyMarks
    is_streamed: bool


class OllamaDoor:
    """Handles Ollama's requests for answers. `chat`: its limit of requests counts here, too.
    `version`: version of this server."""

    def __init__(self, chat: ChatDoor, clock: Clock, version: str) -> None:
        self._chat, self._models, self._clock = chat, chat.models, clock
        self._version = version

    async def chat(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `POST /api/chat`. Raises RequestError, OverloadedError, EngineError."""
        marks = LatencyMarks.start()
        fields = decode_json(await request.read(), OllamaChatFields)
        return await self._answer(request, fields, _message, marks)

    async def generate(self, request: aioweb.Request) -> aioweb.StreamResponse:
        """Handles `POST /api/generate`. Raises as `chat`."""
        marks = LatencyMarks.start()
        fields = decode_json(await request.read(), OllamaGenerateFields)
        return await self._answer(request, generate_as_chat(fields), _response, marks)

    async def version(self, _: aioweb.Request) -> aioweb.Response:
        """Handles `GET /api/version`."""
        return json_response({"version": self._version})

    async def _answer(
        self,
        request: aioweb.Request,
        fields: OllamaChatFields,
        shape: Shape,
        marks: LatencyMarks,
    ) -> aioweb.StreamResponse:
        body = chat_of(fields)
        chat, model = chat_fields(body), self._models.find(model_name(fields.model))
        self._models.check(model, chat)
        work = OllamaWork(model, chat, body, shape, marks, fields.stream is not False)
        async with self._chat.place(model):
            return await while_connected(request, self._send(request, work))

    async def _send(self, request: aioweb.Request, work: OllamaWork) -> aioweb.StreamResponse:
        lines = self._lines(work)
        if not work.is_streamed:
            async with aclosing(lines):
                (whole,) = [line async for line in lines]
            return json_response(whole)
        response = aioweb.StreamResponse(headers={"Content-Type": NDJSON})
        try:
            async with aclosing(lines):
                async for line in lines:
                    if not response.prepared:
                        response.headers.update(work.marks.headers())
                        await response.prepare(request)
                    await send(response, msgspec.json.encode(line) + b"\n")
        except ClientDisconnected:
            raise
        except ConnectionError as exc:
            raise ClientDisconnected from exc
        except EarshotError as error:
            if not response.prepared:
                raise
            await send(response, msgspec.json.encode({"error": str(error)}) + b"\n")
        await response.write_eof()
        return response

    async def _lines(self, work: OllamaWork) -> AsyncGenerator[Line, None]:
        """Yields the lines of the answer; one line with all of it if it is not streamed."""
        now = self._clock.wall()
        answer = ChatAnswer.begin(work.chat, int(now.timestamp()))
        head = {"model": work.chat.model, "created_at": now.isoformat()}
        sent_calls = 0
        async with aclosing(
            self._models.all_deltas(work.model, work.chat, work.body, work.marks)
        ) as deltas:
            async for delta in deltas:
                part = answer.push(delta)
                if part is not None and work.is_streamed:
                    text = part.content if isinstance(part.content, str) else ""
                    calls = _calls(answer)[sent_calls:]
                    sent_calls += len(calls)
                    yield {**head, **work.shape(text, calls), "done": False}
                if answer.stops.is_over:
                    break
        rest = answer.end()
        held = rest.content if rest is not None and isinstance(rest.content, str) else ""
        whole = answer.whole()
        text = held if work.is_streamed else whole.choices[0].message.content or ""
        calls = [] if work.is_streamed else _calls(answer)
        total_ns = int(1e9 * (perf_counter() - work.marks.began_s))
        yield {
            **head,
            **work.shape(text, calls),
            "done": True,
            "done_reason": "length" if answer.finish_reason == "length" else "stop",
            "total_duration": total_ns,
            "load_duration": 0,
            "prompt_eval_count": whole.usage.prompt_tokens,
            "prompt_eval_duration": 0,
            "eval_count": whole.usage.completion_tokens,
            "eval_duration": total_ns,
        }


def _message(text: str, calls: Sequence[Line]) -> Line:
    message: Line = {"role": "assistant", "content": text}
    return {"message": {**message, "tool_calls": list(calls)} if calls else message}


def _response(text: str, _: Sequence[Line]) -> Line:
    return {"response": text}


def _calls(answer: ChatAnswer) -> list[Line]:
    return [
        {
            "function": {
                "name": call.function.name,
                "arguments": msgspec.json.decode(call.function.arguments),
            }
        }
        for call in answer.calls
    ]
