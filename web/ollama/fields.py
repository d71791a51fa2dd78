"""Decodes the bodies of Ollama's REST API, and turns them into chat requests.

https://github.com/ollama/ollama/blob/main/docs/api.md
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct

from core.errors import RequestError
from web.openai.chat.fields import MAX_MESSAGES, MAX_TOOLS, ChatFields, check_chat
from web.openai.text.fields import check_texts

LATEST = ":latest"
"Tag that clients of Ollama add to names without one."


class OllamaFunction(Struct, frozen=True, kw_only=True):
    """Name and arguments of a call."""

    name: str
    arguments: dict[str, Any] = {}


class OllamaToolCall(Struct, frozen=True, kw_only=True):
    """A call of a tool."""

    function: OllamaFunction


class OllamaMessage(Struct, frozen=True, kw_only=True):
    """One message of the conversation."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str | None = None
    images: list[str] | None = None
    "Images as base64."
    tool_calls: list[OllamaToolCall] | None = None
    tool_name: str | None = None
    "Name of the tool whose result this is."


class OllamaOptions(Struct, frozen=True, kw_only=True):
    """Options of the model. Others of Ollama, which concern memory and hardware, are ignored."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    num_predict: int | None = None
    "Largest number of tokens in the answer; 0 or less: no limit."


OutputForm = Literal["", "json"] | dict[str, Any] | None
"Form of the answer: any text, any JSON, or a JSON Schema."


class OllamaChatFields(Struct, frozen=True, kw_only=True):
    """Body of `POST /api/chat`."""

    model: str
    messages: Annotated[list[OllamaMessage], Meta(min_length=1, max_length=MAX_MESSAGES)]
    tools: Annotated[list[dict[str, Any]], Meta(max_length=MAX_TOOLS)] | None = None
    stream: bool | None = None
    "True if it is not given."
    format: OutputForm = None
    options: OllamaOptions | None = None


class OllamaGenerateFields(Struct, frozen=True, kw_only=True):
    """Body of `POST /api/generate`."""

    model: str
    prompt: str = ""
    system: str | None = None
    images: list[str] | None = None
    stream: bool | None = None
    format: OutputForm = None
    options: OllamaOptions | None = None


class OllamaEmbedFields(Struct, frozen=True, kw_only=True):
    """Body of `POST /api/embed`."""

    model: str
    input: str | list[str] = ""
    "A text or a list of texts. Nothing: the answer has no vectors."
    truncate: bool | None = None
    "True, or not given: texts that are too long are cut. False: they are an error."
    dimensions: Annotated[int, Meta(ge=1, le=65_536)] | None = None
    "Shorter vectors, only from models that were trained for it."

    def texts(self) -> list[str]:
        """Returns the texts one by one. Raises RequestError."""
        texts = [self.input] if isinstance(self.input, str) else self.input
        if texts in ([], [""]):
            return []
        check_texts("input", texts)
        return texts


class OllamaEmbeddingsFields(Struct, frozen=True, kw_only=True):
    """Body of `POST /api/embeddings`, the older form for one text."""

    model: str
    prompt: str = ""


class OllamaModelFields(Struct, frozen=True, kw_only=True):
    """Body of requests about one model."""

    model: str = ""
    name: str = ""
    "The older name of `model`."

    def chosen(self) -> str:
        """Returns the name as this server knows it."""
        return model_name(self.model or self.name)


class OllamaPullFields(OllamaModelFields, frozen=True, kw_only=True):
    """Body of `POST /api/pull`."""

    stream: bool | None = None
    "True if it is not given."


def model_name(name: str) -> str:
    """Returns a name without the tag that clients add, and without the address of the hub."""
    name = name.removesuffix(LATEST)
    return name.removeprefix("hf.co/").removeprefix("huggingface.co/")


def chat_of(fields: OllamaChatFields) -> dict[str, Any]:
    """Returns the request as a chat request of OpenAI's API, as JSON."""
    options = fields.options or OllamaOptions()
    limit = options.num_predict
    body: dict[str, Any] = {
        "model": model_name(fields.model),
        "messages": list(_messages(fields.messages)),
        "tools": fields.tools or None,
        "response_format": _response_format(fields.format),
        "temperature": options.temperature,
        "top_p": options.top_p,
        "seed": options.seed,
        "stop": options.stop,
        "max_tokens": limit if limit is not None and limit > 0 else None,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return {name: value for name, value in body.items() if value is not None}


def generate_as_chat(fields: OllamaGenerateFields) -> OllamaChatFields:
    """Returns the request for a text as one for a conversation of one question."""
    system = [OllamaMessage(role="system", content=fields.system)] if fields.system else []
    question = OllamaMessage(role="user", content=fields.prompt, images=fields.images)
    return OllamaChatFields(
        model=fields.model,
        messages=[*system, question],
        stream=fields.stream,
        format=fields.format,
        options=fields.options,
    )


def chat_fields(body: Mapping[str, Any]) -> ChatFields:
    """Returns the checked chat request. Raises RequestError."""
    try:
        return check_chat(msgspec.convert(body, ChatFields))
    except msgspec.ValidationError as error:
        raise RequestError(f"invalid request: {error}", code="invalid_value") from None


def _messages(messages: Sequence[OllamaMessage]) -> Iterator[dict[str, Any]]:
    """Yields the messages with ids for calls: in this API a result belongs to the first call
    without one, or to the first of its name."""
    waiting: list[tuple[str, str]] = []
    count = 0
    for index, message in enumerate(messages):
        if message.role == "tool":
            named = [call for call in waiting if message.tool_name in (None, call[1])] or waiting
            if not named:
                where = f"messages[{index}]"
                raise RequestError(
                    f"{where}: a message with the role 'tool' must follow a call",
                    code="invalid_value",
                    param=where,
                )
            answered = named[0]
            waiting.remove(answered)
            content = message.content or ""
            yield {"role": "tool", "tool_call_id": answered[0], "content": content}
            continue
        calls: list[dict[str, Any]] = []
        for call in message.tool_calls or ():
            call_id = f"call_{count}"
            count += 1
            waiting.append((call_id, call.function.name))
            arguments = msgspec.json.encode(call.function.arguments).decode()
            function = {"name": call.function.name, "arguments": arguments}
            calls.append({"id": call_id, "type": "function", "function": function})
        shown: dict[str, Any] = {"role": message.role, "content": _content(message)}
        yield {**shown, "tool_calls": calls} if calls else shown


def _content(message: OllamaMessage) -> str | list[dict[str, Any]] | None:
    if not message.images:
        return message.content
    text = [{"type": "text", "text": message.content}] if message.content else []
    urls = (f"data:image/{_image_kind(image)};base64,{image}" for image in message.images)
    return [*text, *({"type": "image_url", "image_url": {"url": url}} for url in urls)]


def _image_kind(image: str) -> str:
    """Returns the format of an image by the first letters of its base64."""
    return "png" if image.startswith("iVBOR") else "jpeg"


def _response_format(form: OutputForm) -> dict[str, Any] | None:
    if not form:
        return None
    if form == "json":
        return {"type": "json_object"}
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": form}}
