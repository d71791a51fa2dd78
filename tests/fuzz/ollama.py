"""The bodies of Ollama's API that `chat_bodies` does not have."""

from typing import Any

from core.errors import RequestError
from tests.fuzz.target import Target, lines
from web.ollama.fields import (
    OllamaEmbeddingsFields,
    OllamaEmbedFields,
    OllamaGenerateFields,
    OllamaPullFields,
    chat_fields,
    chat_of,
    generate_as_chat,
)
from web.openai.chat.fields import items_of, prompt_of
from web.openai.json_body import decode_json
from web.openai.text.fields import MAX_INPUTS, MAX_TEXT_CHARS

BODIES: tuple[Any, ...] = (
    {"model": "m:latest", "prompt": "hi", "system": "Be brief.", "images": ["aGk="], "raw": True},
    {"model": "m", "prompt": "hi", "format": "json", "options": {"num_predict": 5, "stop": "x"}},
    {"model": "m", "input": ["cat", "dog"], "truncate": False, "dimensions": 8},
    {"model": "m", "input": "cat", "keep_alive": "5m"},
    {"model": "hf.co/a/b:latest", "stream": False, "insecure": True},
    {"name": "m", "verbose": True},
)
CODES = {
    *("invalid_json", "invalid_value", "missing_required_parameter"),
    *("array_above_max_length", "empty_string", "string_above_max_length"),
}


def bodies(data: bytes) -> None:
    """Checks that a body gives fields within their bounds, or an error that names a field."""
    for read in (_generate, _embed, _older_embed, _model):
        try:
            read(data)
        except RequestError as error:
            assert error.code in CODES, error.code
            assert len(str(error)) < 1000
            str(error).encode()


def _generate(data: bytes) -> None:
    chat = chat_fields(chat_of(generate_as_chat(decode_json(data, OllamaGenerateFields))))
    assert chat.messages[-1].role == "user"
    assert len(prompt_of(chat.messages)) == len(chat.messages)
    items_of(chat.messages)


def _embed(data: bytes) -> None:
    texts = decode_json(data, OllamaEmbedFields).texts()
    assert len(texts) <= MAX_INPUTS
    assert all(0 < len(text) <= MAX_TEXT_CHARS for text in texts)


def _older_embed(data: bytes) -> None:
    decode_json(data, OllamaEmbeddingsFields)


def _model(data: bytes) -> None:
    fields = decode_json(data, OllamaPullFields)
    assert fields.stream in (None, True, False)
    assert len(fields.chosen()) <= max(len(fields.model), len(fields.name))


TARGETS = (Target(name="ollama_bodies", one_input=bodies, seeds=lines(BODIES), is_json=True),)
