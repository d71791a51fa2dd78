"""The bodies of llama.cpp's paths, and the answers of a model's server to them."""

import json
from typing import Any

from core.errors import EngineError, RequestError
from tests.fuzz.target import Target, lines
from web.llama_cpp.completion import CompletionTranslation, completion_body, decode_completion
from web.llama_cpp.door import decode_llama_embedding

BODIES: tuple[Any, ...] = (
    {"prompt": "a", "n_predict": 8, "stop": ["x"], "top_k": 40, "seed": -1, "stream": True},
    {"prompt": [1, 2], "temperature": 0.5, "min_p": 0.1, "n_predict": -1},
    {"content": ["cat", "dog"], "embd_normalize": -1, "model": "m"},
    {"input": [[1, 2], [3]]},
    {"choices": [{"text": "a", "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}},
)


def bodies(data: bytes) -> None:
    """Checks that a body gives fields, or an error with a code that names what was wrong."""
    try:
        body = completion_body(decode_completion(data))
    except RequestError as error:
        _check(error)
    else:
        assert {"prompt"} <= set(body)
        json.dumps(body)
    try:
        _, inputs = decode_llama_embedding(data)
    except RequestError as error:
        _check(error)
    else:
        assert all(inputs)


def answers(data: bytes) -> None:
    """Checks that an answer of a model's server is read, or gives an error."""
    answer = CompletionTranslation("m")
    try:
        text = answer.push(data.decode(errors="replace"))
    except EngineError as error:
        assert len(str(error)) < 200
        return
    json.dumps(answer.end(text))


def _check(error: RequestError) -> None:
    assert error.code
    assert len(str(error)) < 1000
    str(error).encode()


TARGETS = (
    Target(name="llama_cpp_bodies", one_input=bodies, seeds=lines(BODIES), is_json=True),
    Target(name="llama_cpp_answers", one_input=answers, seeds=lines(BODIES), is_json=True),
)
