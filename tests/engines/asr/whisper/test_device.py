"""The device of Whisper's weights: the GPU if it works, else the CPU, with the reason."""

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from core.errors import EngineMissing
from engines.asr.whisper import device
from engines.asr.whisper.model_info import Settings
from tests.engines.nano import NANO

pytestmark = pytest.mark.live


class BrokenGpu:
    """A model that loads and fails at the first decode, as CTranslate2 does without cuBLAS."""

    n_mels = 80

    def encode(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("Library libcublas.so.12 is not found or cannot be loaded")


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Returns the devices that weights are loaded onto, on a machine that seems to have a GPU."""
    devices: list[str] = []

    def load(_: object, settings: Settings, where: str) -> Any:
        devices.append(where)
        assert where == "cuda" or settings.compute_type is None
        return SimpleNamespace(model=BrokenGpu() if where == "cuda" else "on the cpu")

    monkeypatch.setattr("ctranslate2.get_cuda_device_count", lambda: 1)
    monkeypatch.setattr(device, "_load", load)
    return devices


MISSING = [(("libcublas.so.12",), ["cpu"]), ((), ["cuda", "cpu"])]


@pytest.mark.parametrize(("missing", "tried"), MISSING)
def test_auto_falls_back_and_names_the_missing_library(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    loaded: list[str],
    missing: tuple[str, ...],
    tried: list[str],
) -> None:
    monkeypatch.setattr(device, "preload", lambda: missing)
    with caplog.at_level(logging.WARNING):
        whisper = device.load_whisper(NANO, Settings(model=str(NANO), compute_type="float16"))
    assert whisper.model == "on the cpu"
    assert loaded == tried
    assert "libcublas.so.12" in caplog.text


@pytest.mark.parametrize(("missing", "tried"), MISSING)
def test_a_configured_gpu_must_work(
    monkeypatch: pytest.MonkeyPatch, loaded: list[str], missing: tuple[str, ...], tried: list[str]
) -> None:
    monkeypatch.setattr(device, "preload", lambda: missing)
    with pytest.raises(EngineMissing, match=r"libcublas\.so\.12"):
        device.load_whisper(NANO, Settings(model=str(NANO), device="cuda"))
    assert "cpu" not in loaded


def test_the_cpu_needs_no_library_of_a_gpu(
    monkeypatch: pytest.MonkeyPatch, loaded: list[str]
) -> None:
    monkeypatch.setattr(device, "preload", lambda: pytest.fail("nothing of CUDA is loaded"))
    device.load_whisper(NANO, Settings(model=str(NANO), device="cpu"))
    assert loaded == ["cpu"]
