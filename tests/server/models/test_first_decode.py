"""On a GPU `auto` chooses a model by a timed decode; here the device is scripted."""

import asyncio
from pathlib import Path

import pytest

from core.errors import EngineError
from engines.registry import EngineAvailability
from server.compose.choices import PlacementInputs, choose_one
from server.config import AsrConfig, Config, PathsConfig
from server.models.first_decode import MAX_START_S, with_benchmarks
from serving.placement.benchmarks import read_benchmarks
from serving.placement.choose import LIVE_MS, WHISPER_FILES, find_whisper
from serving.placement.hardware import Gpu, Hardware
from serving.placement.offers import LoadableModel
from tests.loop import run_virtual
from tests.server.models.fake_hub import weights_file

GTX_1060 = Hardware(4, 16.0, (Gpu("NVIDIA GeForce GTX 1060 3GB", 3.0, 2.9, "6.1"),))
LAPTOP = Hardware(4, 16.0)
SIZES_MB = {"tiny": 75, "small": 484, "large-v2": 3087}
TAKES_MS = {"tiny": 60.0, "small": 420.0, "large-v2": 4100.0}


class Device:
    """A device with a decode time per model; a model without one fails."""

    def __init__(self, **takes_ms: float) -> None:
        self.takes_ms = takes_ms
        self.asked: list[str] = []

    async def __call__(self, offer: LoadableModel) -> float:
        self.asked.append(offer.name)
        if offer.name not in self.takes_ms:
            raise EngineError("asr", offer.name, "broken on purpose")
        await asyncio.sleep(self.takes_ms[offer.name] / 1000)
        return self.takes_ms[offer.name]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for name, size_mb in SIZES_MB.items():
        (tmp_path / name).mkdir()
        for file in WHISPER_FILES:
            (tmp_path / name / file).touch()
        with (tmp_path / name / "model.bin").open("wb") as weights:
            weights.write(weights_file(1000))
            weights.truncate(size_mb * 1_000_000)
    return tmp_path


def started(
    models: Path, device: Device, hardware: Hardware = GTX_1060, asr: AsrConfig | None = None
) -> tuple[str, str]:
    """Starts and returns the chosen model and the reason."""
    config = Config(paths=PathsConfig(models_dir=str(models)), asr=asr or AsrConfig())
    known = {"asr": [EngineAvailability("faster_whisper", True, "")]}
    found = PlacementInputs(hardware, find_whisper(models), known)  # type: ignore[arg-type]
    out: list[PlacementInputs] = []

    async def main() -> None:
        out.append(await with_benchmarks(config, found, device))

    run_virtual(main())
    choice = choose_one(config, "asr", out[0])
    return Path(choice.options["model"]).name, choice.why


def test_large_v2_is_not_chosen_on_a_slow_gpu_just_because_it_fits(models: Path) -> None:
    """The model fits into its memory, but a sentence would take four seconds."""
    name, why = started(models, device := Device(**TAKES_MS))
    assert name == "small"
    assert device.asked == ["large-v2", "small"]
    assert "420 ms per utterance, measured" in why
    assert "too slow beyond 800 ms: large-v2 takes 4100 ms" in why


def test_a_configured_engine_without_a_model_is_timed_too(models: Path) -> None:
    asr = AsrConfig(engine="faster_whisper")
    assert started(models, Device(**TAKES_MS), asr=asr)[0] == "small"


def test_a_second_start_uses_the_stored_measurement(models: Path) -> None:
    first = started(models, Device(**TAKES_MS))
    assert started(models, again := Device()) == first
    assert again.asked == []
    assert {name: one.best_ms for name, one in read_benchmarks(models).items()} == {
        "large-v2": 4100,
        "small": 420,
    }


def test_a_model_that_is_fast_enough_is_kept(models: Path) -> None:
    name, why = started(models, device := Device(**{"large-v2": LIVE_MS}))
    assert (name, device.asked) == ("large-v2", ["large-v2"])
    assert "800 ms per utterance, measured" in why


def test_the_smallest_model_is_chosen_if_all_are_too_slow(models: Path) -> None:
    name, why = started(models, Device(**dict.fromkeys(SIZES_MB, 900.0)))
    assert name == "tiny"
    assert "small takes 900 ms" in why


def test_a_model_that_does_not_load_in_time_is_too_slow(models: Path) -> None:
    device = Device(**TAKES_MS | {"large-v2": 2000 * MAX_START_S})
    assert started(models, device)[0] == "small"


def test_a_model_that_cannot_be_timed_is_chosen_by_memory_with_a_log_line(models: Path) -> None:
    name, why = started(models, Device())
    assert name == "large-v2"
    assert "by its memory; it was not timed there yet" in why
    assert read_benchmarks(models) == {}


@pytest.mark.parametrize(
    ("hardware", "asr"),
    [
        (LAPTOP, AsrConfig()),
        (GTX_1060, AsrConfig(model="small")),
        (GTX_1060, AsrConfig(engine="faster_whisper", options={"model": "m/small"})),
    ],
)
def test_cpus_and_configured_models_are_not_timed(
    models: Path, hardware: Hardware, asr: AsrConfig
) -> None:
    started(models, device := Device(), hardware, asr)
    assert device.asked == []
