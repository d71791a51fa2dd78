"""Completions in llama.cpp's form: what a model's server is asked, and how it is answered."""

import json
from typing import Any

import pytest

from core.errors import EngineError, RequestError
from web.llama_cpp.completion import CompletionTranslation, completion_body, decode_completion


def asked(**fields: Any) -> dict[str, Any]:
    return completion_body(decode_completion(json.dumps({"prompt": "a", **fields}).encode()))


def test_fields_get_the_names_of_text_completions() -> None:
    assert asked(n_predict=8, stop=["\n"], top_k=40, seed=-1, cache_prompt=True) == {
        "prompt": "a",
        "max_tokens": 8,
        "stop": ["\n"],
        "top_k": 40,
    }
    held = {"grammar": 'root ::= "yes"', "json_schema": {"type": "object"}}
    assert asked(**held) == {"prompt": "a", **held}
    assert asked(n_predict=-1, seed=3) == {"prompt": "a", "seed": 3}
    streamed = asked(prompt=[1, 2], stream=True)
    assert streamed == {
        "prompt": [1, 2],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@pytest.mark.parametrize(
    "fields",
    [
        {"prompt": {}},
        {"n_predict": -2},
        {"stop": ["x"] * 17},
        {"stream": 1},
        {"grammar": 1},
        {"json_schema": "{}"},
    ],
)
def test_a_wrong_field_is_named(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestError) as caught:
        asked(**fields)
    assert caught.value.param == next(iter(fields))


def test_a_streamed_answer_ends_with_its_reason_and_tokens() -> None:
    answer = CompletionTranslation("smol")
    events = (
        {"choices": [{"text": "Hel", "finish_reason": None}]},
        {"choices": [{"text": "lo", "finish_reason": "length"}]},
        {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
    )
    texts = [answer.push(json.dumps(event)) for event in events]
    assert texts == ["Hel", "lo", ""]
    assert answer.piece("Hel") == {"index": 0, "content": "Hel", "stop": False}
    end = answer.end("")
    assert (end["content"], end["stop"], end["stop_type"]) == ("", True, "limit")
    assert (end["tokens_predicted"], end["tokens_evaluated"], end["model"]) == (2, 3, "smol")


@pytest.mark.parametrize("data", ["", "[]", "{", '{"choices": 1}'])
def test_an_answer_of_another_form_is_an_error(data: str) -> None:
    with pytest.raises(EngineError, match="no text completion"):
        CompletionTranslation("smol").push(data)
