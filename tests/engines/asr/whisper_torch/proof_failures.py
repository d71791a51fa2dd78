"""Failures are reported to all callers concerned, and to no others."""

import logging
from collections.abc import Callable, Generator
from typing import Any

import pytest
import torch

from core.errors import EngineError
from engines.asr.whisper_torch.batching.engine_thread import (
    DecodeJob,
    DeviceTask,
    DeviceThread,
    GenerateTask,
)
from engines.asr.whisper_torch.batching.kv_cache import NewRow
from engines.asr.whisper_torch.engine import WhisperTorch
from engines.asr.whisper_torch.network.device import DeviceModel
from engines.base import AsrItem, AsrResult
from tests.engines.asr.whisper_torch import checkpoints
from tests.engines.asr.whisper_torch.driver import clips, encoded_windows, mel, opened

pytestmark = pytest.mark.live

NEW = NewRow((561, 567), 40)

Told = list[tuple[str, Any, Exception | None]]


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> DeviceModel:
    return opened(checkpoints.nano(tmp_path_factory.mktemp("nano")), capacity=4)


def writing(encoded: torch.Tensor) -> Generator[DeviceTask, Any, Any]:
    return (yield GenerateTask(encoded, [NEW]))


def test_all_callers_get_the_error_of_a_device_that_stays_broken(
    device: DeviceModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Even its rows cannot be freed then. A later caller gets the error as well, and is served once
    the device works."""
    (encoded,) = encoded_windows(device, [mel(device, clips()[0], 400)])
    told: Told = []

    def submit(name: str, hangs_up: bool = False) -> DecodeJob:
        def done(result: Any, error: Exception | None) -> None:
            told.append((name, result, error))
            if hangs_up:
                raise BrokenPipeError("the server is gone")

        return loop.submit(writing(encoded), done)

    def broken(*_: Any, **__: Any) -> None:
        raise torch.AcceleratorError("an illegal memory access was encountered")

    with torch.inference_mode(), caplog.at_level(logging.ERROR):
        loop = DeviceThread(device.rows, device.launcher, device.weights.device)
        for name in ("a", "b"):
            submit(name, hangs_up=True)
        given_up = submit("nobody")
        submit("waiting for room")
        loop.run_once()
        with monkeypatch.context() as patched:
            patched.setattr(device.rows._launcher, "step", broken)
            patched.setattr(device.state, "free", broken)
            loop.cancel(given_up)
            loop.run_once()
            assert [name for name, _, _ in told] == ["a", "b", "waiting for room"]
            submit("next")
            loop.run_once()
        assert [name for name, _, _ in told[3:]] == ["next"]
        assert all(isinstance(error, torch.AcceleratorError) for _, _, error in told)
        assert not device.rows.slot_ranges
        assert device.rows.find_free(4) == 0
        submit("later")
        while len(told) < 5:
            loop.run_once()
    assert told[4][2] is None
    assert "a step failed" in caplog.text
    assert "the server is gone" in caplog.text


class _Sudden:
    """A loop in which the first job of a call fails before `submit` returns."""

    def __init__(self) -> None:
        self.submitted: list[DecodeJob] = []
        self.cancelled: list[DecodeJob] = []

    def submit(self, course: Any, done: Callable[[Any, Exception | None], None]) -> DecodeJob:
        job = DecodeJob(course, done)
        self.submitted.append(job)
        if len(self.submitted) == 1:
            done(None, EngineError("asr", "whisper_torch", "too long"))
        return job

    def cancel(self, job: DecodeJob) -> None:
        self.cancelled.append(job)


class _NoPrograms:
    def program(self, item: AsrItem) -> Generator[DeviceTask, Any, Any]:
        yield from ()


def test_a_call_stops_if_its_first_item_fails_at_once() -> None:
    loop, told = _Sudden(), list[list[AsrResult] | Exception]()
    info: Any = None
    programs: Any = _NoPrograms()
    given: Any = loop
    items = [AsrItem(str(i), clips()[0], True) for i in range(3)]
    WhisperTorch(info, programs, given).begin(items, told.append)
    assert len(told) == 1
    assert loop.cancelled[-2:] == loop.submitted[1:]
