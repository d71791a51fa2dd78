"""Decodes the body of `POST /v1/responses`, and turns it into a chat request."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from core.conversation.items import ImageDetail
from core.errors import RequestError
from web.openai.chat.fields import (
    MAX_MESSAGES,
    MAX_TOOLS,
    ChatFields,
    Count,
    NamedFunction,
    check_chat,
)
from web.openai.json_body import decode_json

Messages = tuple[Mapping[str, Any], ...]
"Messages of a chat request, as JSON."

KeptItem = Callable[[str, str], Mapping[str, Any]]
"Returns the kept item of this id as JSON; the second text names the parameter for an error."


class InputText(Struct, frozen=True, tag_field="type", tag="input_text"):
    """Text of a user or of instructions."""

    text: str


class OutputText(Struct, frozen=True, tag_field="type", tag="output_text"):
    """Text of an earlier answer."""

    text: str


class InputRefusal(Struct, frozen=True, tag_field="type", tag="refusal"):
    """Words with which a model refused."""

    refusal: str


class InputImage(Struct, frozen=True, tag_field="type", tag="input_image"):
    """An image as a `data:` URL."""

    image_url: str
    detail: ImageDetail = "auto"


InputPart = InputText | OutputText | InputRefusal | InputImage


class InputItem(Struct, frozen=True, kw_only=True):
    """A message, a call of a function, its output, or a reference to an item that is kept."""

    type: Literal[
        "message", "function_call", "function_call_output", "item_reference", "reasoning"
    ] = "message"
    "`reasoning` is accepted and left out: the models here never get earlier reasoning."
    id: str | None = None
    "Id of the item in an earlier response to which an `item_reference` points."
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | list[InputPart] | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None


class ResponseTool(Struct, frozen=True, kw_only=True):
    """A function that the client runs."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ResponseToolChoice(NamedFunction, frozen=True, kw_only=True):
    """Demands the call of one function."""

    type: Literal["function"] = "function"


class OutputFormat(Struct, frozen=True, kw_only=True):
    """Form of the answer's text."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class TextOptions(Struct, frozen=True, kw_only=True):
    """Options of the answer's text."""

    format: OutputFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(Struct, frozen=True, kw_only=True):
    """Options of models that think."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None = None


class ResponseFields(Struct, frozen=True, kw_only=True):
    """Body of the request."""

    model: Annotated[
        str,
        Meta(
            description=(
                "`assistant`: this server's assistant with its tools. Any other name: the language"
                " model itself."
            )
        ),
    ]
    input: str | Annotated[list[InputItem], Meta(min_length=1, max_length=MAX_MESSAGES)]
    instructions: str | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    tools: Annotated[list[ResponseTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ResponseToolChoice | None = None
    parallel_tool_calls: bool | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    max_output_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    metadata: dict[str, str] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    background: bool | None = None
    conversation: Any = None
    prompt: Any = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None


UNSUPPORTED = ("background", "conversation", "prompt", "top_logprobs")
"Fields of OpenAI's service that nothing here supports."


def decode_response(body: bytes) -> ResponseFields:
    """Decodes and checks the body. Raises RequestError as `decode_json`, and
    unsupported_parameter."""
    fields = decode_json(body, ResponseFields)
    for name in UNSUPPORTED:
        if getattr(fields, name):
            raise RequestError(
                f"{name!r} is not supported here; leave it out.",
                code="unsupported_parameter",
                param=name,
            )
    for index, tool in enumerate(fields.tools or ()):
        if tool.type != "function":
            raise RequestError(
                f"Invalid value for 'tools[{index}].type': {tool.type[:64]!r}. Allowed: function.",
                code="unsupported_parameter",
                param=f"tools[{index}].type",
            )
    return fields


def input_messages(fields: ResponseFields, kept_item: KeptItem) -> Messages:
    """Returns the input as messages of a chat request. Raises RequestError
    missing_required_parameter, and what `kept_item` raises."""
    if isinstance(fields.input, str):
        return ({"role": "user", "content": fields.input},)
    messages: list[dict[str, Any]] = []
    for index, given in enumerate(fields.input):
        item = given
        if given.type == "item_reference":
            kept = kept_item(_given(given.id, index, "id"), f"input[{index}].id")
            item = msgspec.convert(kept, InputItem)
        match item.type:
            case "message":
                content = item.content
                parts = content if isinstance(content, str) else _parts(content or ())
                messages.append({"role": _given(item.role, index, "role"), "content": parts})
            case "function_call":
                call = {
                    "id": _given(item.call_id, index, "call_id"),
                    "type": "function",
                    "function": {
                        "name": _given(item.name, index, "name"),
                        "arguments": _given(item.arguments, index, "arguments"),
                    },
                }
                _add_call(messages, call)
            case "function_call_output":
                output = item.output
                text = output if isinstance(output, str) else _text(output or ())
                call_id = _given(item.call_id, index, "call_id")
                messages.append({"role": "tool", "tool_call_id": call_id, "content": text})
            case "reasoning" | "item_reference":  # the item that is meant is no reference
                pass
    return tuple(messages)


def _given(value: str | None, index: int, name: str) -> str:
    if value is None:
        param = f"input[{index}].{name}"
        raise RequestError(
            f"Missing required parameter: '{param}'.",
            code="missing_required_parameter",
            param=param,
        )
    return value


def _add_call(messages: list[dict[str, Any]], call: Mapping[str, Any]) -> None:
    """Adds a call to the assistant's message before it, or to a new one: calls of one answer are
    one message."""
    last = messages[-1] if messages else {}
    if last.get("role") == "assistant":
        messages[-1] = {**last, "tool_calls": [*last.get("tool_calls", ()), call]}
    else:
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})


def _parts(parts: Sequence[InputPart]) -> str | list[dict[str, Any]]:
    if not any(isinstance(part, InputImage) for part in parts):
        return _text(parts)
    shown: list[dict[str, Any]] = []
    for part in parts:
        if isinstance(part, InputImage):
            url = {"url": part.image_url, "detail": part.detail}
            shown.append({"type": "image_url", "image_url": url})
        else:
            shown.append({"type": "text", "text": _text([part])})
    return shown


def _text(parts: Sequence[InputPart]) -> str:
    texts = (
        part.refusal if isinstance(part, InputRefusal) else part.text
        for part in parts
        if not isinstance(part, InputImage)
    )
    return "\n".join(texts)


def chat_body(fields: ResponseFields, messages: Messages) -> dict[str, Any]:
    """Returns the request as a chat request, as JSON. `messages`: all of the conversation."""
    instructions = fields.instructions
    head = ({"role": "system", "content": instructions},) if instructions else ()
    choice = fields.tool_choice
    body: dict[str, Any] = {
        "model": fields.model,
        "messages": [*head, *messages],
        "tools": [_chat_tool(tool) for tool in fields.tools or ()] or None,
        "tool_choice": (
            {"type": "function", "function": {"name": choice.name}}
            if isinstance(choice, ResponseToolChoice)
            else choice
        ),
        "parallel_tool_calls": fields.parallel_tool_calls if fields.tools else None,
        "response_format": _chat_format(fields.text.format if fields.text else None),
        "reasoning_effort": fields.reasoning.effort if fields.reasoning else None,
        "max_tokens": fields.max_output_tokens,
        "temperature": fields.temperature,
        "top_p": fields.top_p,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return {name: value for name, value in body.items() if value is not None}


def chat_fields(body: Mapping[str, Any]) -> ChatFields:
    """Returns the checked chat request. Raises RequestError invalid_value."""
    try:
        return check_chat(msgspec.convert(body, ChatFields))
    except msgspec.ValidationError as error:
        raise RequestError(f"Invalid body: {error}.", code="invalid_value") from None
    except RequestError as error:
        # The client knows no messages: it sent items.
        raise RequestError(str(error), code=error.code, param="input") from None


def _chat_tool(tool: ResponseTool) -> dict[str, Any]:
    function = {
        "name": tool.name or "",
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict,
    }
    given = {name: value for name, value in function.items() if value is not None}
    return {"type": "function", "function": given}


def _chat_format(form: OutputFormat | None) -> dict[str, Any] | None:
    if form is None or form.type == "text":
        return None
    if form.type == "json_object":
        return {"type": "json_object"}
    schema = {"name": form.name or "answer", "schema": form.schema, "strict": form.strict}
    given = {name: value for name, value in schema.items() if value is not None}
    return {"type": "json_schema", "json_schema": given}
