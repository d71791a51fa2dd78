"""The input of the REST API: forms, their fields, and JSON of any shape."""

import asyncio
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import MultipartReader, StreamReader
from aiohttp.base_protocol import BaseProtocol
from msgspec import UNSET

from core.errors import EarshotError, RequestError
from media.files.upload_spool import SpoolLimits, UploadSpools
from tests.fuzz.shared_loop import run_kept
from tests.fuzz.target import Target, lines
from web.ollama.fields import OllamaChatFields, chat_of
from web.ollama.fields import chat_fields as ollama_fields
from web.openai.chat.fields import ChatFields, decode_chat, items_of, prompt_of, tools_of
from web.openai.json_body import decode_json
from web.openai.responses.fields import chat_body, chat_fields, decode_response, input_messages
from web.openai.responses.store import ResponseStore
from web.openai.speech.fields import MAX_INPUT_CHARS, decode_body
from web.openai.text.fields import (
    MAX_INPUTS,
    MAX_TEXT_CHARS,
    EmbeddingImage,
    decode_embeddings,
    decode_rerank,
)
from web.openai.transcriptions.multipart import read_form
from web.openai.transcriptions.request import transcription, translation

NAMES = (
    "model",
    "language",
    "languages[]",
    "prompt",
    "keywords[]",
    "response_format",
    "temperature",
    "timestamp_granularities[]",
    "timestamp_granularities",
    "include[]",
    "stream",
    "chunking_strategy",
    "chunking_strategy[type]",
    "chunking_strategy[threshold]",
    "beam_size",
    "prefix",
    "padding",
    "no_speech_threshold",
    "task",
    "[",
    "]",
    "model[]",
    "",
)
FIELDS = (
    b"model=default&language=de&prompt=x&response_format=verbose_json&temperature=0.5",
    b"model=default&languages[]=de&languages[]=en&timestamp_granularities[]=word&stream=true",
    b"model=default&chunking_strategy[type]=server_vad&chunking_strategy[threshold]=0.5",
    b"model=default&keywords[]=Ada&include[]=logprobs&beam_size=5&padding=max&task=translate",
)
SPEECH = {
    "model": "tts-1",
    "input": "The kettle is on.",
    "voice": {"id": "alloy"},
    "response_format": "opus",
    "speed": 1.5,
    "instructions": "calmly",
    "stream_format": "sse",
    "language": "de",
}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
CHATS = (
    {
        "model": "assistant",
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "4"},
            {
                "role": "user",
                "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,"}}],
            },
        ],
        "tools": [{"type": "function", "function": {"name": "add", "parameters": {}}}],
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}},
        "stop": ["x"],
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 5,
    },
    {
        "model": "assistant",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
            {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "4"},
        ],
        "instructions": "x",
        "tools": [{"type": "function", "name": "add", "parameters": {}, "strict": True}],
        "text": {"format": {"type": "json_schema", "name": "a", "schema": {}}},
        "reasoning": {"effort": "low"},
    },
    {
        "model": "assistant",
        "messages": [
            {"role": "user", "content": "hi", "images": ["aGk="]},
            {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": {}}}]},
            {"role": "tool", "tool_name": "a", "content": "4"},
        ],
        "options": {"num_predict": 5, "stop": ["x"]},
        "format": {"type": "object"},
    },
)
FORM = (
    b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\ndefault\r\n'
    b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n'
    b"Content-Type: audio/wav\r\nContent-Transfer-Encoding: binary\r\n\r\nRIFF....\r\n"
    b"--b\r\nContent-Disposition: form-data; name=stream\r\nContent-Length: 4\r\n\r\ntrue\r\n"
    b"--b--\r\n"
)
MAX_FILE_BYTES = 500


def fields(data: bytes) -> None:
    """Checks that fields of a form give a job, or an error that names the field."""
    sent = parse_qsl(data.decode(errors="replace"), keep_blank_values=True)
    for understood in (transcription, translation):
        try:
            job = understood(sent)
        except RequestError as error:
            assert error.param
        else:
            assert all(0 < one <= 1 for one in job.options.temperatures)
            assert job.options.beam_size is None or 1 <= job.options.beam_size <= 10


def forms(data: bytes) -> None:
    """Checks that a form gives its fields or one of our errors, and leaves no upload. The first
    byte says where the rest is cut."""
    cut = data[0] * len(data) // 256 if data else 0
    spools = UploadSpools(SpoolLimits(max_bytes=MAX_FILE_BYTES))
    run_kept(_read(spools, data[1:cut], data[max(1, cut) :]))
    assert (spools.count, spools.used_bytes) == (0, 0)


class _Request:
    """The part of a request that a form is read from; aiohttp's own for tests takes a
    millisecond."""

    content_type = "multipart/form-data"

    def __init__(self, content: StreamReader) -> None:
        self.content = content

    async def multipart(self) -> MultipartReader:
        return MultipartReader({"Content-Type": f"{self.content_type}; boundary=b"}, self.content)


async def _read(spools: UploadSpools, *pieces: bytes) -> None:
    loop = asyncio.get_running_loop()
    content = StreamReader(BaseProtocol(loop), 2**16, loop=loop)
    for piece in pieces:
        if piece:
            content.feed_data(piece)
    content.feed_eof()
    with spools.open() as spool:
        try:
            found = await read_form(_Request(content), spool, lambda name: name in NAMES)  # type: ignore[arg-type]
        except EarshotError:
            return
        assert all(name in NAMES for name, _ in found.fields)
        assert spool.size_bytes <= MAX_FILE_BYTES


def speech_bodies(data: bytes) -> None:
    """Checks that a request for speech gives fields within their bounds, or a readable error."""
    try:
        fields = decode_body(data)
    except RequestError as error:
        _check_error(error)
    else:
        assert 0 < len(fields.input) <= MAX_INPUT_CHARS
        assert fields.speed is UNSET or 0.25 <= fields.speed <= 4


def chat_bodies(data: bytes) -> None:
    """Checks that a chat or Responses request becomes a conversation, or a readable error."""
    for read in (decode_chat, _response_chat, _ollama_chat):
        try:
            fields = read(data)
        except RequestError as error:
            assert error.code
            assert len(str(error)) < 1000
            str(error).encode()
        else:
            assert len(prompt_of(fields.messages)) == len(fields.messages)
            items_of(fields.messages)
            tools_of(fields)


def _response_chat(data: bytes) -> ChatFields:
    fields = decode_response(data)
    return chat_fields(chat_body(fields, input_messages(fields, ResponseStore().item)))


def _ollama_chat(data: bytes) -> ChatFields:
    return ollama_fields(chat_of(decode_json(data, OllamaChatFields)))


EMBEDDINGS: tuple[Any, ...] = (
    {"model": "default", "input": "cat", "dimensions": 8, "encoding_format": "base64"},
    {"model": "default", "input": ["cat", "dog"], "input_type": "query"},
    {"model": "default", "input": [[1, 2], [3]]},
    {"model": "default", "input": ["cat", {"text": "dog"}, {"image": "data:image/png;base64,"}]},
    {"model": "default", "query": "cat", "documents": ["a", {"text": "b"}], "top_n": 1},
)


def text_model_bodies(data: bytes) -> None:
    """Checks that requests for embeddings and reranking give inputs within their bounds, or a
    readable error."""
    try:
        _, inputs = decode_embeddings(data)
        assert 0 < len(inputs) <= MAX_INPUTS
        texts = [one for one in inputs if not isinstance(one, EmbeddingImage)]
        assert all(0 < len(one) <= MAX_TEXT_CHARS for one in texts)
    except RequestError as error:
        _check_error(error)
    try:
        assert 0 < len(decode_rerank(data).texts()) <= MAX_INPUTS
    except RequestError as error:
        _check_error(error)


def _check_error(error: RequestError) -> None:
    assert error.code
    assert len(str(error)) < 1000
    str(error).encode()


TARGETS = (
    Target(
        name="text_model_bodies",
        one_input=text_model_bodies,
        seeds=lines(EMBEDDINGS),
        is_json=True,
    ),
    Target(name="chat_bodies", one_input=chat_bodies, seeds=lines(CHATS), is_json=True),
    Target(name="form_fields", one_input=fields, seeds=FIELDS, words=NAMES),
    Target(
        name="forms",
        one_input=forms,
        seeds=tuple(bytes([cut]) + FORM for cut in (0, 60, 200)),
        words=("Content-Disposition: ", "form-data; name=", "\r\n--b", "\r\n\r\n", "filename*="),
    ),
    Target(
        name="speech_bodies",
        one_input=speech_bodies,
        seeds=lines((SPEECH, {**SPEECH, "voice": "alloy", "stream_format": "audio"})),
        is_json=True,
    ),
)
