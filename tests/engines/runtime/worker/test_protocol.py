"""Worker messages survive any split, and a stream out of step is refused."""

import numpy as np
import pytest

from core.errors import RemoteProtocolError
from engines.base import AsrInfo, AsrItem, AsrOptions, AsrResult, Word
from engines.runtime.worker.protocol import (
    MAX_PAYLOAD_BYTES,
    AsrItemMessage,
    DecodeReply,
    DecodeRequest,
    FailureReply,
    ForgetRequest,
    LoadRequest,
    PingRequest,
    PongReply,
    ReadyReply,
    WorkerReply,
    WorkerRequest,
    frame,
    reply_reader,
    request_reader,
)

PCM = np.array([0, 1, -1, 32767, -32768], np.int16)
ITEM = AsrItem("utt_1", PCM, is_final=True, options=AsrOptions("en", prompt="lamp"))

REQUESTS: list[WorkerRequest] = [
    LoadRequest("asr", "faster_whisper", {"model": "models/x", "beam_size": 1}),
    DecodeRequest(7, [AsrItemMessage.of(ITEM), AsrItemMessage("utt_2", b"", False, AsrOptions())]),
    ForgetRequest("utt_1"),
    PingRequest(3),
]
REPLIES: list[WorkerReply] = [
    ReadyReply(AsrInfo("faster_whisper", "whisper-nano", ("en",), 8, is_incremental=False)),
    DecodeReply(7, [AsrResult("turn on", 0.9, "en", (Word("turn", 0, 120.5, 0.8),))]),
    FailureReply("engine_failed", "no memory", 7),
    FailureReply("engine_missing", "no weights"),
    PongReply(3),
]


def test_requests_accept_any_split() -> None:
    data = b"".join(map(frame, REQUESTS))
    for cut in range(len(data) + 1):
        reader = request_reader()
        assert [*reader.receive_data(data[:cut]), *reader.receive_data(data[cut:])] == REQUESTS


def test_replies_accept_single_bytes() -> None:
    reader = reply_reader()
    data = b"".join(map(frame, REPLIES))
    assert [m for byte in data for m in reader.receive_data(bytes([byte]))] == REPLIES


def test_items_keep_their_samples() -> None:
    again = AsrItemMessage.of(ITEM).to_item()
    assert again.pcm.dtype == np.int16
    assert np.array_equal(again.pcm, PCM)
    assert (again.utterance, again.is_final, again.options) == ("utt_1", True, ITEM.options)


@pytest.mark.parametrize(
    "data",
    [
        (MAX_PAYLOAD_BYTES + 1).to_bytes(4, "big"),
        b"\x00\x00\x00\x01\xc1",
        b"\x00\x00\x00\x01\x80",
        frame(ForgetRequest("utt_1")).replace(b"utt_1", b"utt_\xff"),
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
