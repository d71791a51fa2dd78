"""Requests of KServe's protocol: bodies over HTTP, and messages over gRPC."""

from core.errors import RequestError
from engines.base.text import TextModelInfo
from tests.fuzz.target import Target
from tests.server.grpc.wire import chunk, number, parameter, tensor, texts
from web.kserve import messages
from web.kserve.http import IndexFields
from web.kserve.json_body import decode_infer, encode_infer
from web.kserve.speech import sequence_step, speech_items
from web.kserve.tensors import InferRequest, InferResponse
from web.kserve.texts import MAX_INPUTS, embedding_request
from web.openai.json_body import decode_json

HEAD = (
    b'{"id":"7","inputs":[{"name":"WAV","shape":[1,2],"datatype":"FP32","parameters":'
    b'{"binary_data_size":8}},{"name":"WAV_LENS","shape":[1,1],"datatype":"INT32","data":[[2]]}],'
    b'"outputs":[{"name":"TRANSCRIPTS","parameters":{"binary_data":true}}]}'
)
MESSAGE = b"".join(
    (
        chunk(1, b"infer_bls"),
        parameter(b"sequence_id", number(2, 7)),
        tensor(b"WAV", b"FP32", (1, 2)),
        tensor(b"TEXT_PREFIX", b"BYTES", (1, 1)),
        chunk(7, bytes(8)),
        chunk(7, texts(b"<|startoftranscript|>")),
    )
)
TEXTS = (
    b'{"parameters":{"input_type":"query"},"inputs":[{"name":"TEXT","shape":[2,1],'
    b'"datatype":"BYTES","data":["cat",["dog"]]}],"outputs":[{"name":"EMBEDDING"}]}'
)
EMBEDDER = TextModelInfo("onnx", "m", 16, 12, 11, 16, prompts=("query",))
SMALL_MESSAGES = (
    *("ModelReadyRequest", "ModelMetadataRequest", "ModelConfigRequest", "ModelStatisticsRequest"),
    *("RepositoryIndexRequest", "RepositoryModelLoadRequest", "RepositoryModelUnloadRequest"),
)


def body(data: bytes) -> None:
    """Checks that a body is read, or gives an error that names what is wrong."""
    length, _, rest = data.partition(b"\n")
    try:
        decoded = decode_infer("m", "", rest, length.decode("latin-1") or None)
    except RequestError as error:
        _check_error(error)
        return
    outputs = tuple(decoded.request.inputs.values())
    answer, json_bytes = encode_infer(InferResponse("m", "1", "", outputs), decoded)
    assert json_bytes is None or json_bytes <= len(answer)
    _items(decoded.request)
    _texts(decoded.request)


def message(data: bytes) -> None:
    """Checks the same of a message."""
    try:
        request = messages.decode_infer(data)
    except RequestError as error:
        _check_error(error)
        return
    _items(request)
    _texts(request)


def _items(request: InferRequest) -> None:
    try:
        sequence_step(request)
        items = speech_items(request)
    except RequestError as error:
        _check_error(error)
        return
    assert 1 <= len(items) <= 64


def _texts(request: InferRequest) -> None:
    try:
        texts = embedding_request(request, EMBEDDER).contents
    except RequestError as error:
        _check_error(error)
        return
    assert 1 <= len(texts) <= MAX_INPUTS
    assert all(texts)


def small_messages(data: bytes) -> None:
    """Checks that all other messages, and the body of a request for the list, are read, or give an
    error."""
    for name in SMALL_MESSAGES:
        try:
            fields = messages.decode(name, data)
        except RequestError as error:
            _check_error(error)
        else:
            assert type(fields).__name__ == name
    try:
        assert decode_json(data, IndexFields).ready in (True, False)
    except RequestError as error:
        _check_error(error)


def _check_error(error: RequestError) -> None:
    assert error.code
    assert len(str(error)) < 500
    str(error).encode()


TARGETS = (
    Target(
        name="kserve_bodies",
        one_input=body,
        seeds=(
            str(len(HEAD)).encode() + b"\n" + HEAD + bytes(8),
            b"\n" + HEAD,
            b"\n" + TEXTS,
        ),
        words=("binary_data_size", "BYTES", "FP16", "UINT64", "TEXT_PREFIX", "-1", "NaN"),
    ),
    Target(
        name="kserve_messages",
        one_input=message,
        seeds=(MESSAGE,),
        words=("WAV", "WAV_LENS", "BYTES", "INT64", "TEXT_PREFIX", "TEXT", "input_type"),
    ),
    Target(
        name="kserve_small_messages",
        one_input=small_messages,
        seeds=(chunk(1, b"m") + chunk(2, b"1"), chunk(1, b"") + chunk(2, b"m"), b'{"ready":true}'),
        max_bytes=512,
    ),
)
