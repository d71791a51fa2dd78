"""A value of a wrong type, at any depth of any body of the doors for text, is named by its path."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from core.errors import RequestError
from tests.fuzz import forms, llama_cpp
from web.ingrain.fields import IngrainEmbedFields, decode_ingrain
from web.kserve.json_body import decode_infer
from web.llama_cpp.completion import decode_completion
from web.llama_cpp.door import decode_llama_embedding
from web.ollama.fields import (
    OllamaChatFields,
    OllamaEmbeddingsFields,
    OllamaEmbedFields,
    OllamaGenerateFields,
    OllamaPullFields,
)
from web.openai.chat.fields import decode_chat
from web.openai.json_body import decode_json
from web.openai.responses.fields import decode_response
from web.openai.speech.fields import decode_body
from web.openai.text.fields import decode_embeddings, decode_rerank

Path = tuple[str | int, ...]
Decoder = Callable[[bytes], object]

WRONG: tuple[Any, ...] = ({"wrong": 1}, [[{"wrong": 1}]])
"""No field of a body has one of these types, apart from those that take any JSON. Where an object
is, the first is none: fields that are not known are ignored."""

OPTIONS = {"num_predict": 5, "temperature": 1.0, "top_p": 0.5, "seed": 1, "stop": ["x"]}

CASES: dict[str, tuple[Decoder, Any, set[Path]]] = {
    "chat": (decode_chat, forms.CHATS[0], set()),
    "responses": (decode_response, forms.CHATS[1], set()),
    "embeddings": (
        decode_embeddings,
        {"model": "m", "input": ["a", "b"], "dimensions": 8, "encoding_format": "float"},
        set(),
    ),
    "token ids": (decode_embeddings, {"model": "m", "input": [[1, 2], [3]]}, set()),
    "rerank": (
        decode_rerank,
        {"model": "m", "query": "a", "documents": ["a", {"text": "b"}], "top_n": 1},
        set(),
    ),
    "speech": (decode_body, forms.SPEECH, set()),
    "completion of llama.cpp": (decode_completion, llama_cpp.BODIES[0], set()),
    "embedding of llama.cpp": (decode_llama_embedding, {"content": ["a"], "model": "m"}, set()),
    "chat of Ollama": (
        lambda body: decode_json(body, OllamaChatFields),
        {**forms.CHATS[2], "options": OPTIONS, "format": "json"},
        {("format",)},  # an object is a JSON Schema
    ),
    "generate of Ollama": (
        lambda body: decode_json(body, OllamaGenerateFields),
        {"model": "m", "prompt": "a", "images": ["aGk="], "stream": True, "options": OPTIONS},
        set(),
    ),
    "embed of Ollama": (
        lambda body: decode_json(body, OllamaEmbedFields),
        {"model": "m", "input": ["a", "b"], "truncate": True, "dimensions": 4},
        set(),
    ),
    "older embed of Ollama": (
        lambda body: decode_json(body, OllamaEmbeddingsFields),
        {"model": "m", "prompt": "a"},
        set(),
    ),
    "pull of Ollama": (
        lambda body: decode_json(body, OllamaPullFields),
        {"model": "m", "name": "m", "stream": True},
        set(),
    ),
    "Ingrain": (
        lambda body: decode_ingrain(body, IngrainEmbedFields),
        {"name": "m", "text": ["a", "b"], "normalize": True, "n_dims": 4},
        set(),
    ),
    "KServe": (
        lambda body: decode_infer("m", "", body),
        {
            "id": "7",
            "parameters": {"input_type": "query"},
            "inputs": [{"name": "TEXT", "shape": [1], "datatype": "BYTES", "data": ["cat"]}],
            "outputs": [{"name": "EMBEDDING", "parameters": {"binary_data": True}}],
        },
        # its elements are checked with the datatype, and its error names the tensor
        {("inputs", 0, "data"), ("inputs", 0, "data", 0)},
    ),
}
"Door -> its decoder, a valid body, and the paths that are not checked."


@pytest.mark.parametrize("door", CASES)
def test_a_wrong_type_is_named_by_its_path(door: str) -> None:
    decode, body, unchecked = CASES[door]
    decode(json.dumps(body).encode())
    for path in set(_paths(body)) - unchecked:
        for wrong in WRONG[isinstance(_at(body, path), dict) :]:
            with pytest.raises(RequestError) as refused:
                decode(json.dumps(_replaced(body, path, wrong)).encode())
            error = refused.value
            # An element or field of the wrong value may be what is refused.
            assert (error.param or "").startswith(_shown(path)), (path, wrong, error)
            assert _shown(path) in str(error)


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """Yields the path of each value below this one."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, member in pairs:
        yield (*path, key)
        if isinstance(member, dict | list):
            yield from _paths(member, (*path, key))


def _at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


def _replaced(value: Any, path: Path, wrong: Any) -> Any:
    if not path:
        return wrong
    changed = value.copy()
    changed[path[0]] = _replaced(value[path[0]], path[1:], wrong)
    return changed


def _shown(path: Path) -> str:
    """Returns the path as errors show it. The name of an entry whose key the client chose is not
    known to the decoder."""
    shown = ""
    for key in path:
        if isinstance(key, int):
            shown += f"[{key}]"
        else:
            shown += f".{key}" if shown else key
        if key == "parameters":
            return shown
    return shown
