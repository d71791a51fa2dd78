"""Response that is being written, and the events that report it to the client."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from core.conversation.ids import new_id
from core.conversation.usage import TokenUsage
from core.errors import EarshotError, EngineError
from engines.base import ToolCall
from web.openai.chat.completion import usage_of
from web.openai.chat.models import ChatDelta
from web.openai.responses.fields import Messages, ResponseFields

Event = dict[str, Any]


class ResponseAnswer:
    """Collects the pieces of one response.

    answer = ResponseAnswer(fields, created_at)
    events = [*answer.begin(), *answer.push("Hello."), *answer.end()]
    """

    def __init__(self, fields: ResponseFields, created_at: int) -> None:
        """`created_at`: Unix time of the request."""
        self.id = new_id("resp")
        self._fields, self._created_at = fields, created_at
        self._output: list[dict[str, Any]] = []
        self._texts: list[str] = []
        self._counted: list[TokenUsage] = []
        self._sequence = 0
        self.status = "in_progress"
        self.error: EarshotError | None = None

    def begin(self) -> Iterator[Event]:
        """Yields the events with which a response begins."""
        yield self._event("response.created", response=self.body())
        yield self._event("response.in_progress", response=self.body())

    def push(self, delta: ChatDelta) -> Iterator[Event]:
        """Takes the next piece and yields its events."""
        match delta:
            case TokenUsage():
                self._counted.append(delta)
            case ToolCall():
                yield from self._end_text()
                yield from self._call(delta)
            case str() if delta:
                if not self._texts:
                    yield from self._begin_text()
                self._texts.append(delta)
                yield self._event(
                    "response.output_text.delta", **self._place(), delta=delta, logprobs=[]
                )
            case _:
                pass

    def end(self) -> Iterator[Event]:
        """Yields the last events."""
        yield from self._end_text()
        limit = self._fields.max_output_tokens
        written = self._counted[-1].output_tokens if self._counted else 0
        is_cut = limit is not None and written >= limit and self._output[-1:] != []
        self.status = "incomplete" if is_cut and not self._has_call else "completed"
        yield self._event(f"response.{self.status}", response=self.body())

    def fail(self, error: EarshotError) -> Event:
        """Returns the event of a response that failed."""
        self.status, self.error = "failed", error
        return self._event("response.failed", response=self.body())

    @property
    def _has_call(self) -> bool:
        return any(item["type"] == "function_call" for item in self._output)

    def messages(self) -> Messages:
        """Returns the answer as messages of a chat request."""
        texts = [
            part["text"]
            for item in self._output
            if item["type"] == "message"
            for part in item["content"]
        ]
        calls = [
            {
                "id": item["call_id"],
                "type": "function",
                "function": {"name": item["name"], "arguments": item["arguments"]},
            }
            for item in self._output
            if item["type"] == "function_call"
        ]
        if not texts and not calls:
            return ()
        message: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts) or None}
        return ({**message, "tool_calls": calls} if calls else message,)

    def body(self) -> Mapping[str, Any]:
        """Returns the response as it is now."""
        fields, usage = self._fields, usage_of(self._counted)
        is_over = self.status != "in_progress"
        choice, form = fields.tool_choice or "auto", fields.text and fields.text.format
        return {
            "id": self.id,
            "object": "response",
            "created_at": self._created_at,
            "status": self.status,
            "error": self._error(),
            "incomplete_details": (
                {"reason": "max_output_tokens"} if self.status == "incomplete" else None
            ),
            "instructions": fields.instructions,
            "max_output_tokens": fields.max_output_tokens,
            "metadata": fields.metadata or {},
            "model": fields.model,
            "output": [dict(item) for item in self._output],
            "parallel_tool_calls": fields.parallel_tool_calls is not False,
            "previous_response_id": fields.previous_response_id,
            "reasoning": {"effort": fields.reasoning and fields.reasoning.effort, "summary": None},
            "store": fields.store is not False,
            "temperature": fields.temperature,
            "text": {"format": _given(msgspec.to_builtins(form)) if form else {"type": "text"}},
            "tool_choice": msgspec.to_builtins(choice),
            "tools": [msgspec.to_builtins(tool) for tool in fields.tools or ()],
            "top_p": fields.top_p,
            "truncation": fields.truncation or "disabled",
            "usage": {
                "input_tokens": usage.prompt_tokens,
                "input_tokens_details": {
                    "cached_tokens": usage.prompt_tokens_details.cached_tokens
                },
                "output_tokens": usage.completion_tokens,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage.total_tokens,
            }
            if is_over
            else None,
        }

    def _error(self) -> dict[str, str] | None:
        if self.error is None:
            return None
        code = self.error.code if isinstance(self.error, EngineError) else "server_error"
        return {"code": code, "message": str(self.error)}

    def _begin_text(self) -> Iterator[Event]:
        item = {
            "id": new_id("msg"),
            "type": "message",
            "status": "in_progress",
            "role": "assistant",
            "content": [],
        }
        self._output.append(item)
        index = len(self._output) - 1
        yield self._event("response.output_item.added", output_index=index, item=dict(item))
        yield self._event("response.content_part.added", **self._place(), part=_text_part(""))

    def _end_text(self) -> Iterator[Event]:
        if not self._texts:
            return
        text, place = "".join(self._texts), self._place()
        self._texts.clear()
        item = self._output[place["output_index"]]
        item.update(status="completed", content=[_text_part(text)])
        yield self._event("response.output_text.done", **place, text=text, logprobs=[])
        yield self._event("response.content_part.done", **place, part=_text_part(text))
        yield self._event(
            "response.output_item.done", output_index=place["output_index"], item=dict(item)
        )

    def _call(self, call: ToolCall) -> Iterator[Event]:
        arguments = msgspec.json.encode(dict(call.arguments)).decode()
        item = {
            "id": new_id("fc"),
            "type": "function_call",
            "status": "completed",
            "call_id": call.call_id,
            "name": call.name,
            "arguments": arguments,
        }
        self._output.append(item)
        index = len(self._output) - 1
        begun = {**item, "status": "in_progress", "arguments": ""}
        place = {"output_index": index, "item_id": item["id"]}
        yield self._event("response.output_item.added", output_index=index, item=begun)
        kind = "response.function_call_arguments"
        yield self._event(f"{kind}.delta", **place, delta=arguments)
        yield self._event(f"{kind}.done", **place, name=call.name, arguments=arguments)
        yield self._event("response.output_item.done", output_index=index, item=dict(item))

    def _place(self) -> dict[str, Any]:
        index = len(self._output) - 1
        return {"output_index": index, "item_id": self._output[index]["id"], "content_index": 0}

    def _event(self, kind: str, **values: object) -> Event:
        event = {"type": kind, "sequence_number": self._sequence, **values}
        self._sequence += 1
        return event


def _text_part(text: str) -> dict[str, object]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _given(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if value is not None}
