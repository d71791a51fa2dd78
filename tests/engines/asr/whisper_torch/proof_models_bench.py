"""`earshot models bench` times both engines with the same model and saves the result."""

import io
import shutil
from pathlib import Path

import pytest

from core.terminal import ProgressBar
from engines.registry import EngineAvailability
from server.commands.models import bench as measuring
from serving.placement.benchmarks import device_name, read_benchmarks, save_benchmark
from serving.placement.choose import EnginePreference, find_whisper, select_engine
from serving.placement.hardware import detect_hardware
from tests.engines.asr.whisper_torch import checkpoints
from tests.engines.nano import NANO

pytestmark = pytest.mark.live


def test_both_engines_are_timed_and_auto_follows(tmp_path: Path) -> None:
    shutil.copytree(NANO, tmp_path / "command")
    folder = checkpoints.nano(tmp_path / "command.checkpoint")
    progress = ProgressBar(io.StringIO())
    found = measuring.measure(tmp_path, "command", str(folder), progress)
    noted = read_benchmarks(tmp_path)["command"]
    hardware = detect_hardware()
    assert noted.device == device_name(hardware)
    assert noted.checkpoint == str(folder)
    assert 0 < noted.faster_whisper_ms < 5000
    assert noted.whisper_torch_ms is not None
    assert 0 < noted.whisper_torch_ms < 5000
    is_torch = noted.whisper_torch_ms < noted.faster_whisper_ms
    assert found.faster == ("whisper_torch" if is_torch else "faster_whisper")
    quick = type(noted)(str(folder), 20.0, 10.0, noted.device)
    save_benchmark(tmp_path, "command", quick)
    both = [EngineAvailability(name, True, "") for name in ("faster_whisper", "whisper_torch")]
    assert (
        select_engine("asr", EnginePreference(), both, find_whisper(tmp_path), hardware).name
        == "whisper_torch"
    )
