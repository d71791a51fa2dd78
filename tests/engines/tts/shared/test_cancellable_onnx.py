"""Cancelling a clause ends the model's run, so the next clause does not wait for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from importlib.util import find_spec
from threading import Event
from typing import Any

import numpy as np
import pytest

from core.audio import silence
from engines.base import TtsInfo
from engines.tts.shared.cancellable_onnx import CancellableOnnxSession
from engines.tts.shared.synthesis_thread import ClauseReceiver, SpeechChunk, ThreadedSynthesis
from tests.conftest import require

pytestmark = pytest.mark.live

RATE_HZ = 16_000
PATIENCE_S = 30
SIZE, NODES = 600, 4000
"The run takes a minute of one core, so a test that waits for all of it fails."


def slow_model() -> CancellableOnnxSession:
    require(find_spec("onnx") is not None, "onnx is not installed")
    from onnx import TensorProto, helper, numpy_helper
    from onnxruntime import InferenceSession

    def value(name: str) -> Any:
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, [SIZE, SIZE])

    weights = numpy_helper.from_array(np.full((SIZE, SIZE), 1 / SIZE, np.float32), "w")
    nodes = [helper.make_node("MatMul", [f"y{i}", "w"], [f"y{i + 1}"]) for i in range(NODES)]
    graph = helper.make_graph(nodes, "slow", [value("y0")], [value(f"y{NODES}")], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return CancellableOnnxSession(
        InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    )


async def text_chunks(text: str) -> AsyncIterator[str]:
    yield text


def test_closing_the_generator_ends_the_run() -> None:
    session, running, ended = slow_model(), Event(), Event()
    synthesis = ThreadedSynthesis(TtsInfo("slow", RATE_HZ, {"en": ("a",)}))

    def synthesise(clause: str, receiver: ClauseReceiver) -> None:
        with session.cancellable_by(receiver):
            receiver.put(SpeechChunk(silence(20, RATE_HZ)))
            if clause == "slow":
                running.set()
                try:
                    session.run(None, {"y0": np.ones((SIZE, SIZE), np.float32)})
                finally:
                    ended.set()

    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S):
            async with aclosing(synthesis.speak(text_chunks("slow"), synthesise, None)) as frames:
                await anext(frames)
                assert await asyncio.to_thread(running.wait, PATIENCE_S)
            async with aclosing(synthesis.speak(text_chunks("next"), synthesise, None)) as frames:
                assert [frame.start async for frame in frames] == [0]
            assert ended.is_set()

    asyncio.run(scenario())


def test_cancelling_before_the_work_begins_stops_it() -> None:
    stopped: list[bool] = []

    async def scenario() -> None:
        receiver = ClauseReceiver(asyncio.get_running_loop())
        receiver.cancel()
        receiver.on_cancel(lambda: stopped.append(True))

    asyncio.run(scenario())
    assert stopped == [True]


def test_other_attributes_come_from_the_wrapped_session() -> None:
    session = slow_model()
    assert [one.name for one in session.get_inputs()] == ["y0"]
    with pytest.raises(AttributeError, match="nothing"):
        _ = session.nothing
