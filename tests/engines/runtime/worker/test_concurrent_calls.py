"""The host of a recogniser that has its own thread: calls overlap, and can be cancelled."""

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Raw, Struct
from msgspec.msgpack import encode

from engines.base import AsrInfo, AsrItem, AsrOptions, AsrResult, ConcurrentAsrModel, OnDecoded
from engines.runtime.worker.hosts import AsrHost
from engines.runtime.worker.payloads import AsrBatch, AsrItemMessage
from engines.runtime.worker.protocol import CallRequest, DoneReply, FailureReply

ITEM = AsrItemMessage.from_item(AsrItem("utt", np.zeros(160, np.int16), True, AsrOptions()))


class SlowModel:
    """A model that answers when the test calls its callback."""

    def __init__(self) -> None:
        self.info = AsrInfo("slow", "slow", ("en",), 4, is_incremental=False)
        self.begun: list[OnDecoded] = []
        self.cancelled: list[int] = []

    def begin(self, items: Sequence[AsrItem], done: OnDecoded) -> Callable[[], None]:
        if len(items) > 1:
            raise ZeroDivisionError("the library is confused")
        number = len(self.begun)
        self.begun.append(done)
        return lambda: self.cancelled.append(number)

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        raise NotImplementedError

    def forget(self, utterance: str) -> None:
        """Does nothing, because no state is kept."""

    def close(self) -> None:
        """Does nothing, because nothing is open."""


def decode_call(request_id: int, *items: AsrItemMessage) -> CallRequest[Raw]:
    return CallRequest(request_id, "decode", Raw(encode(AsrBatch(list(items)))))


def test_answers_are_sent_in_the_order_of_completion() -> None:
    replies: list[Struct] = []
    model = SlowModel()
    assert isinstance(model, ConcurrentAsrModel)
    host = AsrHost(model, replies.append)
    for request_id in (1, 2, 3):
        host.call(decode_call(request_id, ITEM))
    host.cancel(1)
    host.cancel(99)
    model.begun[2]([AsrResult("third", 1.0, "en")])
    model.begun[1](ValueError("broken"))
    host.cancel(3)
    host.call(decode_call(4, ITEM, ITEM))
    assert model.cancelled == [0]
    assert replies == [
        DoneReply(3, [AsrResult("third", 1.0, "en")]),
        FailureReply("engine_failed", "slow: ValueError", 2),
        FailureReply("engine_failed", "slow: ZeroDivisionError", 4),
    ]
