"""Silero's network in numpy gives the same results as onnxruntime, for each stream separately."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnxruntime import InferenceSession, SessionOptions
from threadpoolctl import threadpool_info, threadpool_limits

from core.audio import Pcm
from core.errors import EngineMissing
from engines.registry import load
from engines.vad.silero import SileroVad
from engines.vad.silero.layers import FRAME_SAMPLES
from engines.vad.silero.weights import SileroNetwork, bundled_weights, load_network
from tests.speech import say

pytestmark = pytest.mark.live

TOLERANCE = 1e-5
STATE_TOLERANCE = 1e-4
"The tolerance of the state: it differs by 7e-5 for steps at full scale, by 1e-5 for other sound."
CONTEXT_SAMPLES = 64


class Reference:
    """One stream, computed by onnxruntime."""

    h: npt.NDArray[np.float32]
    c: npt.NDArray[np.float32]

    def __init__(self, session: Any) -> None:
        self._session = session
        self.reset()

    def push(self, pcm: Pcm) -> float:
        self._input[0, :CONTEXT_SAMPLES] = self._input[0, -CONTEXT_SAMPLES:]
        self._input[0, CONTEXT_SAMPLES:] = pcm / 32768
        inputs = {"input": self._input, "h": self.h, "c": self.c}
        probability, self.h, self.c = self._session.run(None, inputs)
        return float(probability[0])

    def reset(self) -> None:
        self._input = np.zeros((1, CONTEXT_SAMPLES + FRAME_SAMPLES), np.float32)
        self.h = self.c = np.zeros((1, 1, 128), np.float32)


@pytest.fixture(scope="module")
def session() -> Any:
    options = SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return InferenceSession(str(bundled_weights()), options, providers=["CPUExecutionProvider"])


@pytest.fixture(scope="module")
def network() -> SileroNetwork:
    return load_network(None)


def frames(pcm: Pcm) -> Iterator[Pcm]:
    for at in range(0, len(pcm) - FRAME_SAMPLES + 1, FRAME_SAMPLES):
        yield pcm[at : at + FRAME_SAMPLES]


def noise(level: float) -> Pcm:
    samples = np.random.default_rng(3).normal(0, level, 60 * FRAME_SAMPLES)
    return np.clip(samples, -32768, 32767).astype(np.int16)


@cache
def sounds() -> dict[str, Pcm]:
    return {
        "speech": say("turn on the kitchen lights please", lead_ms=500, tail_ms=1500),
        "another voice": say("what time is it", "en-gb+f3", tail_ms=300),
        "hiss": noise(30),
        "noise": noise(3000),
        "clipped noise": noise(60000),
        "silence": np.zeros(60 * FRAME_SAMPLES, np.int16),
        "one step": np.repeat(np.array([-32768, 32767], np.int16), 20 * FRAME_SAMPLES),
    }


@pytest.mark.parametrize(
    "sound",
    ["speech", "another voice", "hiss", "noise", "clipped noise", "silence", "one step"],
)
def test_probabilities_equal_those_of_onnxruntime(
    network: SileroNetwork, session: Any, sound: str
) -> None:
    vad, reference = SileroVad(network), Reference(session)
    for frame in frames(sounds()[sound]):
        assert vad.push(frame) == pytest.approx(reference.push(frame), abs=TOLERANCE)
        state = np.concatenate([vad._lstm.output, vad._lstm.cell])
        expected = np.concatenate([reference.h[0, 0], reference.c[0, 0]])
        np.testing.assert_allclose(state, expected, rtol=STATE_TOLERANCE, atol=STATE_TOLERANCE)


@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
def test_streams_that_begin_and_end_are_independent(
    network: SileroNetwork, session: Any, seed: int
) -> None:
    """Frames of a few streams come in any order; now and then a stream ends and another replaces
    it, or it is reset."""
    random, clips = Random(seed), list(sounds().values())
    streams: list[tuple[SileroVad, Reference, Iterator[Pcm]]] = []
    for _ in range(120):
        if len(streams) < 4 and random.random() < 0.2:
            clip = random.choice(clips)
            start = random.randrange(len(clip) // 2)
            streams.append((SileroVad(network), Reference(session), frames(clip[start:])))
        if not streams:
            continue
        vad, reference, sound = stream = random.choice(streams)
        frame = next(sound, None)
        if frame is None:
            streams.remove(stream)
            continue
        if random.random() < 0.03:
            vad.reset()
            reference.reset()
        assert vad.push(frame) == pytest.approx(reference.push(frame), abs=TOLERANCE)


def test_the_matrix_library_uses_one_thread() -> None:
    threadpool_limits(limits=2, user_api="blas")
    load("vad", "silero", {})
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    assert {pool["num_threads"] for pool in pools} == {1}


def test_a_file_of_another_network_is_named(tmp_path: Path) -> None:
    weights = bundled_weights().read_bytes()
    files = {
        "text.onnx": b"hello",
        "empty.onnx": b"",
        "half.onnx": weights[: len(weights) // 2],
        "other.onnx": weights.replace(b"LSTM", b"GRUs"),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        for engine in ("silero", "gated"):
            with pytest.raises(EngineMissing, match=rf"{name} is not Silero VAD v6"):
                load("vad", engine, {"path": str(tmp_path / name)})


def test_a_first_layer_that_is_not_a_fourier_transform_is_refused(tmp_path: Path) -> None:
    weights = bundled_weights().read_bytes()
    window = np.hanning(257)[:256].astype("<f4").tobytes()[40:80]
    file = tmp_path / "other.onnx"
    at = weights.index(window[:4])
    file.write_bytes(weights[:at] + np.float32(0.7).tobytes() + weights[at + 4 :])
    with pytest.raises(EngineMissing, match="not a Fourier transform"):
        load("vad", "silero", {"path": str(file)})
