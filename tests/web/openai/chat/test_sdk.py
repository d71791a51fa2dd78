"""OpenAI's Python client, unchanged, against `earshot serve` with a scripted model server."""

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from pydantic import BaseModel

from tests.clients.scripted_server import LONG, answering

pytestmark = pytest.mark.live

PARAMETERS = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]}
FUNCTION: dict[str, Any] = {"name": "set_light", "description": "x", "parameters": PARAMETERS}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAI]:
    with (
        answering(tmp_path_factory.mktemp("server")) as server,
        OpenAI(api_key="key", base_url=f"{server.url}/v1", max_retries=0) as client,
    ):
        yield client


def test_a_tool_of_the_client_is_called_and_its_result_answered(client: OpenAI) -> None:
    assert "assistant" in [model.id for model in client.models.list()]
    tools: Any = [{"type": "function", "function": FUNCTION}]
    messages: list[Any] = [{"role": "user", "content": "the light, please"}]
    asked: Any = {"model": "assistant", "tools": tools}
    with client.chat.completions.stream(messages=messages, **asked) as stream:
        for _ in stream:
            pass
        (choice,) = stream.get_final_completion().choices
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    (call,) = choice.message.tool_calls
    assert (call.function.name, call.function.arguments) == ("set_light", '{"on":true}')
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": '{"state": "on"}'}
    called: Any = {"role": "assistant", "content": None, "tool_calls": [call.to_dict()]}
    answer = client.chat.completions.create(messages=[*messages, called, result], **asked)
    assert answer.choices[0].message.content == "It says on."


def test_a_response_is_continued_streamed_and_forgotten(client: OpenAI) -> None:
    tools: Any = [{"type": "function", **FUNCTION, "strict": False}]
    for model in ("assistant", "default"):
        asked = client.responses.create(model=model, input="the light, please", tools=tools)
        (call,) = [one for one in asked.output if one.type == "function_call"]
        result: Any = {
            "type": "function_call_output",
            "call_id": call.call_id,
            "output": '{"state": "on"}',
        }
        answer = client.responses.create(
            model=model, input=[result], previous_response_id=asked.id, tools=tools
        )
        assert answer.output_text == "It says on."
        assert answer.usage is not None
        assert answer.usage.total_tokens == 37
        references: Any = [{"type": "item_reference", "id": one.id} for one in asked.output]
        by_reference = client.responses.create(model=model, input=[*references, result])
        assert by_reference.output_text == "It says on."
        with client.responses.stream(model=model, input="count") as stream:
            kinds = [event.type for event in stream]
            assert stream.get_final_response().output_text == LONG
        assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
        assert client.responses.retrieve(asked.id).id == asked.id
        client.responses.delete(asked.id)
        with pytest.raises(openai.NotFoundError) as missing:
            client.responses.create(model=model, input="on", previous_response_id=asked.id)
        assert missing.value.code == "response_not_found"
        with pytest.raises(openai.NotFoundError) as unknown:
            client.responses.create(model=model, input=references)
        assert (unknown.value.code, unknown.value.param) == ("item_not_found", "input[0].id")


def test_errors_have_the_classes_of_the_client(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(
            model="assistant", messages=[{"role": "user", "content": "hi"}], seed=3
        )
    assert (wrong.value.code, wrong.value.param) == ("unsupported_parameter", "seed")
    with pytest.raises(openai.BadRequestError) as text_only:
        client.completions.create(model="assistant", prompt="Once")
    assert text_only.value.code == "unsupported_operation"


class Light(BaseModel):
    """State of a light."""

    on: bool


def test_answers_are_parsed_into_the_class_of_the_client(client: OpenAI) -> None:
    model = "assistant"
    said: Any = [{"role": "user", "content": "count"}]
    parsed = client.chat.completions.parse(model=model, messages=said, response_format=Light)
    assert parsed.choices[0].message.parsed is not None
    with client.chat.completions.stream(
        model=model, messages=said, response_format=Light
    ) as stream:
        pieces = [event.delta for event in stream if event.type == "content.delta"]
        streamed = stream.get_final_completion().choices[0].message.parsed
    response = client.responses.parse(model=model, input="count", text_format=Light)
    # The assistant has tools, so it first answers in words, and then in the form.
    assert parsed.choices[0].message.parsed == Light(on=True)
    assert streamed == response.output_parsed == Light(on=True)
    assert len(pieces) > 1


def test_an_answer_in_a_form_comes_after_the_calls_of_the_clients_tools(client: OpenAI) -> None:
    tools: Any = [{"type": "function", "function": {**FUNCTION, "strict": True}}]
    tools[0]["function"]["parameters"] = {**PARAMETERS, "additionalProperties": False}
    messages: list[Any] = [{"role": "user", "content": "the light, please"}]
    asked: Any = {"model": "assistant", "tools": tools, "response_format": Light}
    message = client.chat.completions.parse(messages=messages, **asked).choices[0].message
    assert (message.content, message.parsed) == (None, None)
    assert message.tool_calls is not None
    (call,) = message.tool_calls
    called: Any = {"role": "assistant", "content": None, "tool_calls": [call.to_dict()]}
    result: Any = {"role": "tool", "tool_call_id": call.id, "content": '{"state": "on"}'}
    answer = client.chat.completions.parse(messages=[*messages, called, result], **asked)
    assert answer.choices[0].message.parsed == Light(on=True)
    assert answer.choices[0].finish_reason == "stop"
