"""Bodies of Ollama's API: conversations with tools whose calls have no ids, and wrong fields."""

import json
from typing import Any

import pytest

from core.errors import RequestError
from web.ollama.fields import (
    OllamaChatFields,
    OllamaGenerateFields,
    chat_fields,
    chat_of,
    generate_as_chat,
)
from web.openai.chat.fields import ChatFields
from web.openai.json_body import decode_json

HI = {"role": "user", "content": "hi"}


def chat(**fields: Any) -> ChatFields:
    body = json.dumps({"model": "assistant:latest", "messages": [HI], **fields}).encode()
    return chat_fields(chat_of(decode_json(body, OllamaChatFields)))


def call(name: str) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": {"a": 1}}}


def test_results_find_their_calls_by_order_and_by_name() -> None:
    fields = chat(
        messages=[
            HI,
            {"role": "assistant", "content": "", "tool_calls": [call("add"), call("sub")]},
            {"role": "tool", "tool_name": "sub", "content": "0"},
            {"role": "tool", "content": "2"},
        ]
    )
    assert fields.model == "assistant"
    sent = [one.id for one in fields.messages[1].tool_calls or ()]
    assert [one.tool_call_id for one in fields.messages[2:]] == [sent[1], sent[0]]


def test_a_result_with_another_name_belongs_to_the_first_call() -> None:
    fields = chat(
        messages=[
            {"role": "assistant", "content": "", "tool_calls": [call("add")]},
            {"role": "tool", "tool_name": "", "content": "2"},
        ]
    )
    sent = [one.id for one in fields.messages[0].tool_calls or ()]
    assert [fields.messages[1].tool_call_id] == sent


def test_options_and_forms_become_those_of_a_chat_request() -> None:
    fields = chat(options={"num_predict": 9, "stop": ["x"], "num_ctx": 4096}, format="json")
    assert (fields.limit_tokens, fields.stops) == (9, ("x",))
    assert fields.response_format is not None
    assert chat(options={"num_predict": -1}).limit_tokens is None
    asked = {"model": "m", "system": "Be brief.", "prompt": "hi", "images": ["iVBORw0="]}
    generate = decode_json(json.dumps(asked).encode(), OllamaGenerateFields)
    system, question = chat_fields(chat_of(generate_as_chat(generate))).messages
    assert (system.role, system.text) == ("system", "Be brief.")
    assert question.images[0].url == "data:image/png;base64,iVBORw0="


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": []},
        {"messages": [{"role": "robot"}]},
        {"messages": [{"role": "tool", "content": "4"}]},
        {"messages": [{"role": "user", "content": 4}]},
        {"tools": [{"type": "browser"}]},
        {"options": {"temperature": 9}},
        {"format": 3},
    ],
)
def test_wrong_fields_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError):
        chat(**fields)
