"""Converts a conversation to the messages of chat templates and OpenAI-compatible servers. Pure.

Strict templates want one system message first, then a user message, then alternating turns, and
every tool call followed by its result. A spoken conversation looks different: sentences come in
pieces, answers are cut off, and an announcement may come before any user message.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import msgspec

from core.conversation.items import ImagePart
from core.ports import ToolSpec
from engines.base import Message, ToolCall

EMPTY_USER_TEXT = "..."
"Text of a user message that is inserted if the assistant spoke first."

SPEAKER_PREFIX = "{} says: "
"Words before what a known person said, where several people use the assistant."


def chat_messages(
    messages: Sequence[Message], *, arguments_as_text: bool = True
) -> list[dict[str, object]]:
    """Returns the conversation in the order and shape that strict templates want.

    arguments_as_text: True encodes the arguments of a tool call as a JSON string, as OpenAI's
    protocol wants; False leaves them an object, as chat templates want.
    """
    system = "\n\n".join(m.text for m in messages if m.role == "system" and m.text)
    results = {m.call_id: m.text for m in messages if m.role == "tool"}
    chat: list[dict[str, object]] = [{"role": "system", "content": system}] if system else []
    dialogue = [message for message in _dialogue(messages, results) if not _is_empty(message)]
    if not dialogue or dialogue[0].role != "user":
        chat.append({"role": "user", "content": EMPTY_USER_TEXT})
    for message in _merge_messages(dialogue):
        chat.append(_chat_message(message, as_text=arguments_as_text))
        chat += (
            {"role": "tool", "tool_call_id": call.call_id, "content": results[call.call_id]}
            for call in message.tool_calls
        )
    return chat


def chat_tools(tools: Sequence[ToolSpec]) -> list[dict[str, object]]:
    """Returns the tools as function definitions of the chat completions protocol."""
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": dict(tool.parameters),
            },
        }
        for tool in tools
    ]


def _dialogue(messages: Sequence[Message], results: Mapping[str, str]) -> Iterator[Message]:
    """Yields the messages of user and assistant, without system messages and tool results.

    results: result of each tool call, by its id. Calls without a result are left out: servers
    refuse them, and models wait for the result.
    """
    for message in messages:
        if message.role == "user":
            yield message
        elif message.role == "assistant":
            calls = tuple(call for call in message.tool_calls if call.call_id in results)
            yield Message("assistant", message.text, calls)


def _is_empty(message: Message) -> bool:
    return message.role == "assistant" and not message.text and not message.tool_calls


def _merge_messages(dialogue: Sequence[Message]) -> Iterator[Message]:
    """Merges consecutive messages of one role, but starts a new message after each tool round."""
    for role, group in groupby(dialogue, key=lambda message: message.role):
        texts: list[str] = []
        images: tuple[ImagePart, ...] = ()
        calls: tuple[ToolCall, ...] = ()
        for message in group:
            if calls and (message.text or message.tool_calls):
                yield Message(role, _join_lines(texts), calls)
                texts, calls = [], ()
            texts.append(_words_of(message))
            images += message.images
            calls = message.tool_calls
        yield Message(role, _join_lines(texts), calls, images=images)


def _words_of(message: Message) -> str:
    """Returns the text, with the name of the person who said it."""
    is_named = message.speaker and message.text
    return SPEAKER_PREFIX.format(message.speaker) + message.text if is_named else message.text


def _join_lines(texts: Sequence[str]) -> str:
    return "\n".join(text for text in texts if text)


def _chat_message(message: Message, *, as_text: bool) -> dict[str, object]:
    content: str | list[dict[str, object]] = message.text
    if message.images:
        content = [*map(_image_part, message.images)]
        if message.text:
            content.insert(0, {"type": "text", "text": message.text})
    chat_message: dict[str, object] = {"role": message.role, "content": content}
    if message.tool_calls:
        chat_message["tool_calls"] = [
            _function_call(call, as_text=as_text) for call in message.tool_calls
        ]
    return chat_message


def _image_part(image: ImagePart) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": image.url, "detail": image.detail}}


def _function_call(call: ToolCall, *, as_text: bool) -> dict[str, object]:
    arguments: object = dict(call.arguments)
    if as_text:
        arguments = msgspec.json.encode(arguments).decode()
    return {
        "id": call.call_id,
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    }
