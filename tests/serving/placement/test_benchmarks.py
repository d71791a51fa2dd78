"""The choice of the faster engine by a benchmark, as long as the benchmark still applies."""

from pathlib import Path

import pytest

from core.errors import ConfigError
from engines.registry import EngineAvailability
from serving.placement.benchmarks import (
    FILE,
    ModelBenchmark,
    device_name,
    read_benchmarks,
    save_benchmark,
)
from serving.placement.choose import WHISPER_FILES, EnginePreference, find_whisper, select_engine
from serving.placement.hardware import Hardware
from tests.server.models.fake_hub import weights_file

MACHINE = Hardware(cores=8, memory_gb=32)
BOTH = [
    EngineAvailability("faster_whisper", True, ""),
    EngineAvailability("whisper_torch", True, ""),
]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "small").mkdir()
    for file in WHISPER_FILES:
        (tmp_path / "small" / file).write_bytes(weights_file(1000))
    (tmp_path / "whisper-small").mkdir()
    return tmp_path


def note(models: Path, torch_ms: float, device: str = device_name(MACHINE)) -> None:
    checkpoint = str(models / "whisper-small")
    save_benchmark(models, "small", ModelBenchmark(checkpoint, 40.0, torch_ms, device))


def chosen(
    models: Path, known: list[EngineAvailability], wanted: EnginePreference | None = None
) -> str:
    weights = find_whisper(models)
    return select_engine("asr", wanted or EnginePreference(), known, weights, MACHINE).name


def test_the_faster_engine_is_chosen(models: Path) -> None:
    assert chosen(models, BOTH) == "faster_whisper"
    note(models, 60.0)
    assert chosen(models, BOTH) == "faster_whisper"
    note(models, 20.0)
    assert chosen(models, BOTH) == "whisper_torch"
    choice = select_engine("asr", EnginePreference(), BOTH, find_whisper(models), MACHINE)
    assert choice.options == {"model": str(models / "whisper-small")}
    assert "whisper_torch was measured to be faster" in choice.why


def test_a_benchmark_is_ignored_if_the_engine_is_missing_or_configured(models: Path) -> None:
    note(models, 20.0)
    assert chosen(models, BOTH[:1]) == "faster_whisper"
    assert chosen(models, BOTH, EnginePreference("faster_whisper")) == "faster_whisper"
    assert chosen(models, BOTH, EnginePreference(options={"beam_size": 5})) == "faster_whisper"
    (models / "whisper-small").rmdir()
    assert chosen(models, BOTH) == "faster_whisper"


@pytest.mark.parametrize("device", ["", "NVIDIA H200", "64 cores"])
def test_a_benchmark_of_another_machine_is_ignored(models: Path, device: str) -> None:
    note(models, 20.0, device)
    assert chosen(models, BOTH) == "faster_whisper"


def test_a_damaged_benchmark_file_is_ignored(models: Path) -> None:
    (models / FILE).write_text("{")
    assert read_benchmarks(models) == {}
    assert chosen(models, BOTH) == "faster_whisper"


def test_a_checkpoint_folder_may_be_configured_for_whisper_torch(models: Path) -> None:
    wanted = EnginePreference("whisper_torch", model=str(models / "whisper-small"))
    choice = select_engine("asr", wanted, BOTH, (), MACHINE)
    assert (choice.name, choice.options) == (
        "whisper_torch",
        {"model": str(models / "whisper-small")},
    )
    with pytest.raises(ConfigError, match="takes a folder with a checkpoint"):
        select_engine("asr", EnginePreference("whisper_torch", model="small"), BOTH, (), MACHINE)
