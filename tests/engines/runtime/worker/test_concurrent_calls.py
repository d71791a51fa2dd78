"""A worker process whose engine has a thread of its own: calls overlap, and can be cancelled."""

import socket
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from engines.base import AsrInfo, AsrItem, AsrOptions, AsrResult
from engines.base.asr import ConcurrentAsrModel, OnDecoded
from engines.runtime.worker.main import EngineWorker
from engines.runtime.worker.protocol import (
    AsrItemMessage,
    CancelRequest,
    DecodeReply,
    DecodeRequest,
    FailureReply,
    reply_reader,
)

pytestmark = pytest.mark.live

ITEM = AsrItemMessage.of(AsrItem("utt", np.zeros(160, np.int16), True, AsrOptions()))


class Slow:
    """Answers when it is told to."""

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
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing is open."""


def test_answers_come_in_the_order_in_which_they_are_done() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        model, worker = Slow(), EngineWorker(theirs)
        assert isinstance(model, ConcurrentAsrModel)
        for request_id in (1, 2, 3):
            worker._serve(model, DecodeRequest(request_id, [ITEM]))
        worker._serve(model, CancelRequest(1))
        worker._serve(model, CancelRequest(99))
        model.begun[2]([AsrResult("third", 1.0, "en")])
        model.begun[1](ValueError("broken"))
        worker._serve(model, CancelRequest(3))
        worker._serve(model, DecodeRequest(4, [ITEM, ITEM]))
        replies = list(reply_reader().receive_data(ours.recv(65_536)))
    assert model.cancelled == [0]
    assert [type(reply) for reply in replies] == [DecodeReply, FailureReply, FailureReply]
    third, second, fourth = replies
    assert isinstance(third, DecodeReply)
    assert (third.request_id, third.results[0].text) == (3, "third")
    assert isinstance(second, FailureReply)
    assert (second.request_id, second.code) == (2, "engine_failed")
    assert isinstance(fourth, FailureReply)
    assert fourth.message == "slow: ZeroDivisionError"
