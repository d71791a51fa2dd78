"""Worker messages: read in any split, and refused in the wrong state."""

import numpy as np
import pytest
from msgspec import Raw
from msgspec.msgpack import decode, encode

from core.conversation.usage import RateLimit, RateLimits, TokenUsage
from core.errors import RemoteProtocolError
from engines.base import (
    AsrInfo,
    AsrItem,
    AsrOptions,
    AsrResult,
    CallDelta,
    TextDelta,
    ToolCall,
    Word,
)
from engines.runtime.worker.payloads import AsrBatch, AsrItemMessage, DeltaMessage, LlmDelta
from engines.runtime.worker.protocol import (
    MAX_PAYLOAD_BYTES,
    CallRequest,
    CancelRequest,
    ChunkReply,
    DoneReply,
    FailureReply,
    LoadRequest,
    PingRequest,
    PongReply,
    ReadyReply,
    WorkerReply,
    WorkerRequest,
    frame,
    reply_reader,
    request_reader,
    worker_command,
)

PCM = np.array([0, 1, -1, 32767, -32768], np.int16)
ITEM = AsrItem("utt_1", PCM, is_final=True, options=AsrOptions("en", prompt="lamp"))

BATCH = AsrBatch(
    [AsrItemMessage.from_item(ITEM), AsrItemMessage("utt_2", b"", False, AsrOptions())]
)
RESULT = AsrResult("turn on", 0.9, "en", (Word("turn", 0, 120.5, 0.8),))

REQUESTS: list[WorkerRequest] = [
    LoadRequest("asr", "faster_whisper", {"model": "models/x", "beam_size": 1}),
    CallRequest(7, "decode", Raw(encode(BATCH))),
    CancelRequest(7),
    PingRequest(3),
]
REPLIES: list[WorkerReply] = [
    ReadyReply(Raw(encode(AsrInfo("w", "whisper-nano", ("en",), 8, is_incremental=False)))),
    ChunkReply(7, Raw(encode("turn"))),
    DoneReply(7, Raw(encode([RESULT]))),
    FailureReply("engine_failed", "no memory", 7),
    FailureReply("engine_missing", "no weights"),
    FailureReply("engine_busy", "full", 8, retry_after_s=2),
    FailureReply("unknown_voice", "no such voice", 9, is_request_error=True, param="voice"),
    PongReply(3),
]
DELTAS: list[LlmDelta] = [
    TextDelta("Good morning."),
    TextDelta(""),
    CallDelta("call_1", "light", '{"on"'),
    ToolCall("call_1", "light", {"on": True}),
    TokenUsage(12, 3, 8),
    RateLimits((RateLimit("tokens", 100, 99, 1.5),)),
]


def test_requests_are_read_in_any_split() -> None:
    data = b"".join(map(frame, REQUESTS))
    for cut in range(len(data) + 1):
        reader = request_reader()
        assert [*reader.receive_data(data[:cut]), *reader.receive_data(data[cut:])] == REQUESTS


def test_replies_are_read_byte_by_byte() -> None:
    reader = reply_reader()
    data = b"".join(map(frame, REPLIES))
    assert [m for byte in data for m in reader.receive_data(bytes([byte]))] == REPLIES


def test_a_payload_is_decoded_by_its_receiver() -> None:
    (request,) = request_reader().receive_data(bytes(frame(CallRequest(7, "decode", BATCH))))
    assert isinstance(request, CallRequest)
    assert (request.request_id, request.method) == (7, "decode")
    assert decode(request.payload, type=AsrBatch) == BATCH


@pytest.mark.parametrize("delta", DELTAS)
def test_deltas_of_a_language_model_keep_their_type(delta: LlmDelta) -> None:
    message = decode(encode(DeltaMessage.from_delta(delta)), type=DeltaMessage)
    assert message.to_delta() == delta


def test_numbers_of_numpy_are_sent_as_plain_numbers() -> None:
    (reply,) = reply_reader().receive_data(
        bytes(frame(DoneReply(1, [np.float32(0.5), np.int64(3)])))
    )
    assert reply == DoneReply(1, Raw(encode([0.5, 3])))
    with pytest.raises(RemoteProtocolError, match="a message cannot hold the type object"):
        frame(DoneReply(1, object()))


def test_a_worker_gets_the_environment_and_priority_of_its_engine() -> None:
    command = worker_command("python", 3, environment={"HF_HUB_OFFLINE": "1"}, nice=5)
    assert command[:4] == ["nice", "-n", "5", "env"]
    assert command.index("HF_HUB_OFFLINE=1") < command.index("python")


def test_items_keep_their_samples() -> None:
    again = AsrItemMessage.from_item(ITEM).to_item()
    assert again.pcm.dtype == np.int16
    assert np.array_equal(again.pcm, PCM)
    assert (again.utterance, again.is_final, again.options) == ("utt_1", True, ITEM.options)


@pytest.mark.parametrize(
    "data",
    [
        (MAX_PAYLOAD_BYTES + 1).to_bytes(4, "big"),
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x00\x00\x01\x80",
        frame(CallRequest(1, "utt_1", None)).replace(b"utt_1", b"utt_\xff"),
        frame(PongReply(1)),
        b"\x00\x00\x00\x00",
    ],
    ids=["too long", "not msgpack", "no type", "no UTF-8", "wrong direction", "empty"],
)
def test_bad_frames_are_refused(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        list(request_reader().receive_data(data))


def test_half_a_sample_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="3 bytes"):
        AsrItemMessage("u", b"abc", True, AsrOptions()).to_item()
