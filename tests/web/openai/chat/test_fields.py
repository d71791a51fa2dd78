"""Bodies of chat and Responses requests: what is refused, and what becomes of the rest."""

import json
from typing import Any

import pytest

from core.conversation.items import FunctionCallItem, FunctionOutputItem, MessageItem
from core.errors import RequestError
from web.openai.chat.completion import StopSequences
from web.openai.chat.fields import ChatFields, decode_chat, items_of, prompt_of, tools_of
from web.openai.responses.fields import chat_body, chat_fields, decode_response, input_messages
from web.openai.responses.store import ResponseStore

HI = {"role": "user", "content": "hi"}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": '{"sum": 4}'}
ADD = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0="}}


def chat(**fields: Any) -> bytes:
    return json.dumps({"model": "assistant", "messages": [HI], **fields}).encode()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "robot", "content": "hi"}]}, "messages[...].role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[...].content"),
        ({"messages": [{"role": "user", "content": [{"type": "sound"}]}]}, "messages"),
        ({"messages": [{"role": "tool", "content": "4"}]}, "messages[0].tool_call_id"),
        ({"messages": [HI, RESULT]}, "messages[1].tool_call_id"),
        (
            {"messages": [{**CALLED, "tool_calls": [{**CALL, "function": {"name": "add"}}]}]},
            "messages",
        ),
        (
            {
                "messages": [
                    {
                        **CALLED,
                        "tool_calls": [{**CALL, "function": {"name": "a", "arguments": "[]"}}],
                    }
                ]
            },
            "messages[0].tool_calls[0].function.arguments",
        ),
        ({"messages": [{"role": "system", "content": [IMAGE]}]}, "messages[0].content"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [
                            {"type": "image_url", "image_url": {"url": "file:///etc/hosts"}}
                        ],
                    }
                ]
            },
            "messages[0].content",
        ),
        ({"temperature": 3}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"seed": "x"}, "seed"),
        ({"stop": [1]}, "stop"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"tools": [ADD, ADD]}, "tools"),
        ({"tools": [{**ADD, "type": "browser"}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"function": {"name": "sub"}}, "tools": [ADD]}, "tool_choice"),
    ],
)
def test_a_wrong_field_is_named_at_any_depth(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        decode_chat(chat(**fields))
    assert (caught.value.param or "").startswith(param.partition("...")[0].rstrip("["))
    assert len(str(caught.value)) < 500


def test_messages_become_items_and_a_prompt() -> None:
    named = {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]}
    seen = {"role": "user", "content": [{"type": "text", "text": "What is it?"}, IMAGE]}
    fields = decode_chat(chat(messages=[named, HI, CALLED, RESULT, seen], tools=[ADD]))
    system, hi, call, result, image = items_of(fields.messages)
    assert isinstance(system, MessageItem)
    assert (system.role, system.text) == ("system", "Be brief.")
    assert isinstance(hi, MessageItem)
    assert isinstance(call, FunctionCallItem)
    assert (call.call_id, call.name, call.arguments) == ("c1", "add", '{"a": 2}')
    assert isinstance(result, FunctionOutputItem)
    assert isinstance(image, MessageItem)
    assert len(image.images) == 1
    prompt = prompt_of(fields.messages)
    assert [one.role for one in prompt] == ["system", "user", "assistant", "tool", "user"]
    assert prompt[2].tool_calls[0].arguments == {"a": 2}
    assert prompt[3].call_id == "c1"
    (tool,) = tools_of(fields)
    assert (tool.name, tool.is_clients) == ("add", True)


@pytest.mark.parametrize(
    ("stops", "pieces", "text"),
    [
        ((), ["one ", "two"], "one two"),
        (("two",), ["one ", "two three"], "one "),
        (("two",), ["one t", "w", "o three"], "one "),
        (("two",), ["one t", "en"], "one ten"),
        (("two",), ["one tw"], "one tw"),
        (("three", "two"), ["one two three"], "one "),
        (("aab",), ["aa", "ab"], "a"),
    ],
)
def test_a_text_ends_before_its_first_stop_sequence(
    stops: tuple[str, ...], pieces: list[str], text: str
) -> None:
    filtered = StopSequences(stops)
    passed = [filtered.push(piece) for piece in pieces]
    assert "".join([*passed, filtered.end()]) == text


def chat_of(body: bytes) -> ChatFields:
    fields = decode_response(body)
    return chat_fields(chat_body(fields, input_messages(fields, ResponseStore().item)))


def response(**fields: Any) -> bytes:
    return json.dumps({"model": "assistant", "input": "hi", **fields}).encode()


def test_input_items_become_messages_of_one_conversation() -> None:
    fields = decode_response(
        response(
            instructions="Be brief.",
            input=[
                {"role": "user", "content": [{"type": "input_text", "text": "two and two"}]},
                {"type": "reasoning", "id": "r", "summary": []},
                {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
                {"type": "function_call", "call_id": "c2", "name": "add", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "4"},
                {"type": "function_call_output", "call_id": "c2", "output": "4"},
            ],
            tools=[{"type": "function", "name": "add", "parameters": {"type": "object"}}],
            text={"format": {"type": "json_schema", "name": "sum", "schema": {"type": "object"}}},
        )
    )
    body = chat_body(fields, input_messages(fields, ResponseStore().item))
    assert [one["role"] for one in body["messages"]] == [
        "system",
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert [one["id"] for one in body["messages"][2]["tool_calls"]] == ["c1", "c2"]
    assert body["response_format"]["json_schema"]["name"] == "sum"
    assert chat_fields(body).has_usage_chunk


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": []}, "input"),
        ({"input": [{"type": "computer_call"}]}, "input"),
        ({"input": [{"content": "no role"}]}, "input[0].role"),
        ({"input": [{"type": "function_call_output", "output": "4"}]}, "input[0].call_id"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "4"}]}, "input"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"background": True}, "background"),
        ({"max_output_tokens": -1}, "max_output_tokens"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ],
)
def test_a_wrong_field_of_a_response_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        chat_of(response(**fields))
    assert (caught.value.param or "").startswith(param)
