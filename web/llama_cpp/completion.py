"""Translates llama.cpp's `POST /completion` to OpenAI's text completions, and the answer back."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from core.errors import EngineError
from pipeline.shared.settings import DEFAULT
from web.openai.json_body import decode_json

MAX_STOPS = 16
"Largest number of texts that end an answer."

MAX_GRAMMAR_CHARS = 64 * 1024
"Longest grammar; one for a large JSON schema has some thousand characters."

NO_LIMIT = -1
"Value of `n_predict` without a limit."


class LlamaCompletionFields(Struct, frozen=True, kw_only=True):
    """Body of `POST /completion`. Other fields of llama.cpp are ignored."""

    prompt: Annotated[str | list[int], Meta(description="A text, or its token ids.")]
    model: Annotated[str, Meta(description="A language model of `GET /v1/models`.")] = DEFAULT
    n_predict: Annotated[
        Annotated[int, Meta(ge=-1)] | None,
        Meta(description="Largest number of tokens; -1: no limit."),
    ] = None
    stream: bool = False
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: Annotated[list[str], Meta(max_length=MAX_STOPS)] | None = None
    grammar: Annotated[
        Annotated[str, Meta(max_length=MAX_GRAMMAR_CHARS)] | None,
        Meta(description="GBNF grammar that the answer follows; only where llama.cpp answers."),
    ] = None
    json_schema: Annotated[
        dict[str, Any] | None,
        Meta(description="JSON schema that the answer follows; only where llama.cpp answers."),
    ] = None


class _Choice(Struct):
    text: str = ""
    finish_reason: str | None = None


class _Usage(Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Completion(Struct):
    """The part of an answer, or of an event of it, that is read."""

    choices: list[_Choice] = []
    usage: _Usage | None = None


def decode_completion(body: bytes) -> LlamaCompletionFields:
    """Decodes a request. Raises RequestError invalid_json, invalid_value,
    missing_required_parameter."""
    return decode_json(body, LlamaCompletionFields)


def completion_body(fields: LlamaCompletionFields) -> dict[str, Any]:
    """Returns the request as one for text completions, for the model's server."""
    limit = None if fields.n_predict == NO_LIMIT else fields.n_predict
    body: dict[str, object] = {
        "prompt": fields.prompt,
        "max_tokens": limit,
        "temperature": fields.temperature,
        "top_p": fields.top_p,
        "top_k": fields.top_k,
        "min_p": fields.min_p,
        "seed": None if fields.seed == -1 else fields.seed,
        "stop": fields.stop or None,
        "grammar": fields.grammar or None,
        "json_schema": fields.json_schema,
        "stream": fields.stream or None,
        "stream_options": {"include_usage": True} if fields.stream else None,
    }
    return {name: value for name, value in body.items() if value is not None}


class CompletionTranslation:
    """Collects the answer of a model's server, and writes it as llama.cpp does."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._usage = _Usage()
        self._reason: str | None = None

    def push(self, data: str) -> str:
        """Takes a whole answer, or the data of one event, and returns the text that it adds. Raises
        EngineError for what is neither."""
        try:
            found = msgspec.json.decode(data.encode(), type=_Completion)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            why = "its server sent an answer that is no text completion"
            raise EngineError("llm", self._model, why) from None
        self._usage = found.usage or self._usage
        for choice in found.choices[:1]:
            self._reason = choice.finish_reason or self._reason
            return choice.text
        return ""

    def piece(self, text: str) -> dict[str, Any]:
        """Returns an event of a streamed answer that goes on."""
        return {"index": 0, "content": text, "stop": False}

    def end(self, text: str) -> dict[str, Any]:
        """Returns the whole answer, or the last event of a streamed one."""
        is_limit = self._reason == "length"
        return {
            "index": 0,
            "content": text,
            "stop": True,
            "stop_type": "limit" if is_limit else "eos",
            "truncated": False,
            "model": self._model,
            "tokens_predicted": self._usage.completion_tokens,
            "tokens_evaluated": self._usage.prompt_tokens,
        }
