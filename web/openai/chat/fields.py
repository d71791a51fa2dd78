"""Decodes and checks the body of `POST /v1/chat/completions`."""

import re
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from core.conversation.ids import new_id
from core.conversation.items import (
    FunctionCallItem,
    FunctionOutputItem,
    ImageDetail,
    ImagePart,
    Item,
    MessageItem,
    TextPart,
)
from core.errors import RequestError
from core.ports import ToolSpec
from engines.base import AnswerFormat, Message, ToolCall
from pipeline.conversation.answer_format import check_schema
from pipeline.shared.settings import NamedTool, ReasoningEffort, ToolChoice
from pipeline.tools.calls.arguments import is_too_deep, parse_arguments
from web.openai.json_body import decode_json

MAX_MESSAGES = 2000
"Largest number of messages in a request. No context window takes so many, even of one word each."
MAX_TOOLS = 128
"Largest number of tools in a request, as in OpenAI's service."
MAX_STOPS = 16
"Largest number of stop sequences. OpenAI's service takes 4."
MAX_CHOICES = 8
"Largest number of answers to one request: each takes a place in the model's batch."

MAX_SCHEMA_BYTES = 65_536
"Largest schema of an answer. Large ones of real programs have 20 kB; larger ones compile slowly."
FORMAT_NAME = r"[A-Za-z0-9_-]{1,64}"
"Names of schemas that OpenAI's service accepts."

NAME = r"^[A-Za-z0-9_.:/-]{1,128}$"
"Names of functions that model servers accept."


class TextContent(Struct, frozen=True, tag_field="type", tag="text"):
    """Text in a message."""

    text: str


class RefusalContent(Struct, frozen=True, tag_field="type", tag="refusal"):
    """Words with which a model refused, in a message of the assistant."""

    refusal: str


class ImageUrl(Struct, frozen=True):
    """An image as a `data:` URL."""

    url: str
    detail: ImageDetail = "auto"


class ImageContent(Struct, frozen=True, tag_field="type", tag="image_url"):
    """An image in a user's message."""

    image_url: ImageUrl


Content = str | list[TextContent | ImageContent | RefusalContent] | None


class FunctionCall(Struct, frozen=True):
    """Name and arguments of a call."""

    name: str
    arguments: str
    "A JSON object as text."


class MessageToolCall(Struct, frozen=True, kw_only=True):
    """A call of a tool, in a message of the assistant."""

    id: str
    type: Literal["function"] = "function"
    function: FunctionCall


class ChatMessage(Struct, frozen=True, kw_only=True):
    """One message of the conversation."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Content = None
    tool_calls: list[MessageToolCall] | None = None
    tool_call_id: str | None = None
    name: str | None = None

    @property
    def text(self) -> str:
        """The text of all parts, in lines."""
        if not isinstance(self.content, list):
            return self.content or ""
        parts = (
            part.text if isinstance(part, TextContent) else part.refusal
            for part in self.content
            if not isinstance(part, ImageContent)
        )
        return "\n".join(parts)

    @property
    def images(self) -> tuple[ImagePart, ...]:
        """The images."""
        parts = self.content if isinstance(self.content, list) else ()
        images = (part.image_url for part in parts if isinstance(part, ImageContent))
        return tuple(ImagePart(image.url, image.detail) for image in images)


class FunctionSpec(Struct, frozen=True, kw_only=True):
    """Declaration of a function."""

    name: Annotated[str, Meta(pattern=NAME)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class ChatTool(Struct, frozen=True, kw_only=True):
    """A tool that the client runs."""

    type: Literal["function"]
    function: FunctionSpec


class NamedFunction(Struct, frozen=True):
    """Name of the function that must be called."""

    name: str


class NamedChoice(Struct, frozen=True, kw_only=True):
    """Demands the call of one function."""

    type: Literal["function"] = "function"
    function: NamedFunction


class TextFormat(Struct, frozen=True, tag_field="type", tag="text"):
    """Free text."""


class JsonObjectFormat(Struct, frozen=True, tag_field="type", tag="json_object"):
    """Any JSON object."""


class JsonSchema(Struct, frozen=True, kw_only=True):
    """A JSON Schema with a name."""

    name: str
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(Struct, frozen=True, tag_field="type", tag="json_schema"):
    """A JSON value that a schema describes."""

    json_schema: JsonSchema


class StreamOptions(Struct, frozen=True):
    """Options of a stream."""

    include_usage: bool = False


Penalty = Annotated[float, Meta(ge=-2, le=2)]
Count = Annotated[int, Meta(ge=1)]


class ChatFields(Struct, frozen=True, kw_only=True):
    """Body of the request. A model with a server of its own also gets the fields that are not
    listed here."""

    model: Annotated[
        str,
        Meta(
            description=(
                "`assistant`: this server's assistant with its tools. Any other name of"
                " `GET /v1/models`, `default` or `gpt-...`: the language model itself."
            )
        ),
    ]
    messages: Annotated[list[ChatMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    tools: Annotated[list[ChatTool], Meta(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: TextFormat | JsonObjectFormat | JsonSchemaFormat | None = None
    stop: str | Annotated[list[str], Meta(max_length=MAX_STOPS)] | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    seed: int | None = None
    max_tokens: Count | None = None
    max_completion_tokens: Count | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    reasoning_effort: ReasoningEffort | Literal["none"] | None = None
    modalities: list[Literal["text"]] | None = None
    user: str | None = None

    @property
    def stops(self) -> tuple[str, ...]:
        """The stop sequences that are not empty."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(stop for stop in stops if stop)

    @property
    def limit_tokens(self) -> int | None:
        """Largest number of tokens in the answer, from either of its two fields."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def has_usage_chunk(self) -> bool:
        """True if the stream ends with the number of tokens."""
        return self.stream_options is not None and self.stream_options.include_usage


def decode_chat(body: bytes) -> ChatFields:
    """Decodes and checks the body. Raises RequestError as `decode_json` and `check_chat`."""
    return check_chat(decode_json(body, ChatFields))


def check_chat(fields: ChatFields) -> ChatFields:
    """Returns the fields if their values fit together.

    Raises RequestError invalid_value, invalid_image, missing_required_parameter.
    """
    called: set[str] = set()
    for index, message in enumerate(fields.messages):
        where = f"messages[{index}]"
        if message.images and message.role != "user":
            raise _invalid(f"{where}.content", "only a user's message may have images")
        if not all(image.url.startswith("data:image/") for image in message.images):
            raise RequestError(
                f"Invalid value for '{where}.content': an image must be a data: URL, such as"
                " data:image/png;base64,...; this server fetches no addresses.",
                code="invalid_image",
                param=f"{where}.content",
            )
        for number, call in enumerate(message.tool_calls or ()):
            try:
                parse_arguments(call.function.arguments or "{}")
            except ValueError as error:
                place = f"{where}.tool_calls[{number}].function.arguments"
                raise _invalid(place, str(error)) from None
            called.add(call.id)
        if message.role == "tool" and message.tool_call_id is None:
            raise RequestError(
                f"Missing required parameter: '{where}.tool_call_id'.",
                code="missing_required_parameter",
                param=f"{where}.tool_call_id",
            )
        if message.role == "tool" and message.tool_call_id not in called:
            raise _invalid(f"{where}.tool_call_id", "no message before it has a call with this id")
    _check_tools(fields)
    return fields


def _check_tools(fields: ChatFields) -> None:
    names = [tool.function.name for tool in fields.tools or ()]
    if len(names) != len(set(names)):
        raise _invalid("tools", "two tools have the same name")
    for index, tool in enumerate(fields.tools or ()):
        if is_too_deep(tool.function.parameters):
            raise _invalid(f"tools[{index}].function.parameters", "too many levels")
    chosen = fields.tool_choice
    if isinstance(chosen, NamedChoice) and chosen.function.name not in names:
        raise _invalid("tool_choice", f"there is no tool {chosen.function.name[:64]!r} in 'tools'")
    if chosen == "required" and not names:
        raise _invalid("tool_choice", "'required' needs 'tools'")


def _invalid(param: str, why: str) -> RequestError:
    return RequestError(f"Invalid value for '{param}': {why}.", code="invalid_value", param=param)


def items_of(messages: Sequence[ChatMessage]) -> tuple[Item, ...]:
    """Returns the messages as items of a conversation."""
    items: list[Item] = []
    for message in messages:
        if message.role == "tool":
            call_id = message.tool_call_id or ""
            items.append(FunctionOutputItem(new_id("item"), call_id, message.text))
            continue
        role: Literal["system", "user", "assistant"] = (
            "system" if message.role == "developer" else message.role
        )
        if message.text or message.images:
            text = (TextPart(message.text),) if message.text else ()
            items.append(MessageItem(new_id("item"), role, (*text, *message.images)))
        items += (
            FunctionCallItem(new_id("item"), call.id, call.function.name, _arguments(call))
            for call in message.tool_calls or ()
        )
    return tuple(items)


def prompt_of(messages: Sequence[ChatMessage]) -> list[Message]:
    """Returns the messages as a language model takes them."""
    return [
        Message(
            "system" if message.role == "developer" else message.role,
            message.text,
            tuple(
                ToolCall(call.id, call.function.name, parse_arguments(_arguments(call)))
                for call in message.tool_calls or ()
            ),
            message.tool_call_id or "",
            message.images,
        )
        for message in messages
    ]


def _arguments(call: MessageToolCall) -> str:
    return call.function.arguments or "{}"


def tools_of(fields: ChatFields) -> tuple[ToolSpec, ...]:
    """Returns the client's tools as a language model takes them."""
    return tuple(
        ToolSpec(
            tool.function.name,
            tool.function.description or "",
            tool.function.parameters or {"type": "object", "properties": {}},
            is_clients=True,
        )
        for tool in fields.tools or ()
    )


def choice_of(fields: ChatFields) -> ToolChoice:
    """Returns the tool choice as the conversation takes it."""
    choice = fields.tool_choice
    return NamedTool(choice.function.name) if isinstance(choice, NamedChoice) else choice or "auto"


def answer_format_of(fields: ChatFields) -> AnswerFormat | None:
    """Returns the form of the answer as a language model takes it. None: free text."""
    match fields.response_format:
        case JsonObjectFormat():
            return AnswerFormat()
        case JsonSchemaFormat(json_schema=given):
            return AnswerFormat(given.schema, given.name, given.strict)
        case _:
            return None


def check_answer_format(form: AnswerFormat) -> None:
    """Raises RequestError invalid_value for a schema or a name that is not valid.

    A model with a server of its own checks them itself.
    """
    param = "response_format"
    if not re.fullmatch(FORMAT_NAME, form.name):
        why = "the name of a schema has 1 to 64 letters, digits, '-' and '_'"
        raise _invalid(param, why)
    if form.schema is None:
        return
    if is_too_deep(form.schema):
        raise _invalid(param, "the schema has too many levels")
    if (size := len(msgspec.json.encode(form.schema))) > MAX_SCHEMA_BYTES:
        raise _invalid(param, f"the schema has {size} bytes, the limit is {MAX_SCHEMA_BYTES}")
    try:
        check_schema(form.schema)
    except ValueError as error:
        raise _invalid(param, str(error)) from None


def last_question(fields: ChatFields) -> str:
    """Returns the text of the last user's message; empty without one."""
    users = (message.text for message in reversed(fields.messages) if message.role == "user")
    return next(users, "")


def private_texts(fields: ChatFields) -> list[str]:
    """Returns the texts that no log and no error may repeat."""
    return [message.text for message in fields.messages]
