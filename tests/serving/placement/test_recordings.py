"""The choice between Whisper and a model of sherpa-onnx by results on the user's recordings."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from engines.registry import EngineAvailability
from serving.placement.benchmarks import ModelBenchmark, device_name
from serving.placement.choose import (
    WHISPER_FILES,
    EnginePreference,
    EngineSelection,
    WhisperWeights,
    find_whisper,
    select_engine,
)
from serving.placement.hardware import Hardware
from serving.placement.recordings import (
    FILE,
    RecordingsBenchmark,
    read_recordings_benchmarks,
    save_recordings_benchmark,
)
from serving.placement.sherpa import SherpaWeights, find_sherpa
from tests.server.models.fake_hub import weights_file

LAPTOP = Hardware(4, 16.0)
ENGINES = tuple(
    EngineAvailability(name, True, "")
    for name in ("faster_whisper", "whisper_torch", "pocketsphinx", "sherpa")
)
MEASURED = RecordingsBenchmark(
    size_mb=75,
    recordings="a checksum",
    language="en",
    device=device_name(LAPTOP),
    words=240,
    word_errors_percent=8.0,
    p50_ms=120,
    p95_ms=190,
    memory_mb=300,
)
TINY = WhisperWeights(Path("m/tiny"), 75, on_recordings=MEASURED)


def changed(**fields: Any) -> RecordingsBenchmark:
    """Returns the figures of a faster and more exact model, changed by the given fields."""
    better: dict[str, Any] = {"size_mb": 40, "word_errors_percent": 7.0, "p50_ms": 30}
    return msgspec.structs.replace(MEASURED, **(better | fields))


def sherpa(name: str = "zipformer", **fields: Any) -> SherpaWeights:
    return SherpaWeights(Path("m") / name, 40, changed(**fields))


def chosen(
    *models: SherpaWeights,
    whisper: WhisperWeights = TINY,
    wanted: EnginePreference | None = None,
    engines: tuple[EngineAvailability, ...] = ENGINES,
) -> EngineSelection:
    wanted = wanted or EnginePreference()
    return select_engine("asr", wanted, engines, [whisper], LAPTOP, models)


def test_a_model_that_did_better_is_chosen_with_both_figures() -> None:
    choice = chosen(sherpa())
    assert (choice.name, choice.options) == ("sherpa", {"model": "m/zipformer"})
    assert choice.why == (
        "measured on your recordings: zipformer makes 7.0 % word errors in 30 ms per utterance,"
        " tiny 8.0 % word errors in 120 ms"
    )


@pytest.mark.parametrize(("errors_percent", "engine"), [(8.5, "sherpa"), (8.6, "faster_whisper")])
def test_a_faster_model_may_make_hardly_more_errors(errors_percent: float, engine: str) -> None:
    assert chosen(sherpa(word_errors_percent=errors_percent)).name == engine


@pytest.mark.parametrize(
    "fields",
    [
        {"p50_ms": 120},
        {"recordings": "another checksum"},
        {"device": "64 cores"},
        {"language": "de"},
    ],
)
def test_a_slower_model_or_one_that_was_measured_otherwise_is_not(fields: dict[str, Any]) -> None:
    assert chosen(sherpa(**fields)).name == "faster_whisper"


def test_nothing_is_chosen_that_was_not_measured() -> None:
    not_measured = SherpaWeights(Path("m/zipformer"), 40)
    assert chosen(not_measured).name == "faster_whisper"
    assert chosen(sherpa(), whisper=replace(TINY, on_recordings=None)).name == "faster_whisper"


@pytest.mark.parametrize(
    "wanted",
    [
        EnginePreference("faster_whisper"),
        EnginePreference(model="tiny"),
        EnginePreference(options={"beam_size": 5}),
        EnginePreference(language="de"),
    ],
)
def test_a_configured_engine_or_another_language_is_respected(wanted: EnginePreference) -> None:
    assert chosen(sherpa(), wanted=wanted).name == "faster_whisper"


def test_the_library_must_be_installed() -> None:
    without = (*ENGINES[:3], EngineAvailability("sherpa", False, "not installed"))
    assert chosen(sherpa(), engines=without).name == "faster_whisper"


def test_the_figures_of_another_machine_do_not_count() -> None:
    elsewhere = msgspec.structs.replace(MEASURED, device="64 cores")
    choice = chosen(sherpa(device="64 cores"), whisper=replace(TINY, on_recordings=elsewhere))
    assert choice.name == "faster_whisper"


def test_whisper_in_torch_was_not_measured_on_recordings(tmp_path: Path) -> None:
    faster = ModelBenchmark(str(tmp_path), 40.0, 20.0, device_name(LAPTOP))
    assert chosen(sherpa(), whisper=replace(TINY, measured=faster)).name == "whisper_torch"


def test_of_several_models_the_one_with_fewest_errors_is_chosen() -> None:
    models = (
        sherpa("quick", word_errors_percent=8.2, p50_ms=10),
        sherpa("exact", word_errors_percent=5.0, p50_ms=90),
        sherpa("exact-and-quick", word_errors_percent=5.0, p50_ms=60),
    )
    assert chosen(*models).options == {"model": "m/exact-and-quick"}


def test_results_belong_to_weights_of_one_size(tmp_path: Path) -> None:
    for folder, files in (("tiny", WHISPER_FILES), ("zip", ("model.onnx", "tokens.txt"))):
        (tmp_path / folder).mkdir()
        for file in files:
            (tmp_path / folder / file).write_bytes(weights_file(1000))
    size_mb = (tmp_path / "zip" / "model.onnx").stat().st_size / 1e6
    saved = changed(size_mb=size_mb)
    for folder in ("tiny", "zip"):
        save_recordings_benchmark(tmp_path, folder, saved)
    (whisper,), (model,) = find_whisper(tmp_path), find_sherpa(tmp_path)
    assert whisper.on_recordings == model.on_recordings == saved
    (tmp_path / "zip" / "model.onnx").write_bytes(b"another model")
    (model,) = find_sherpa(tmp_path)
    assert model.on_recordings is None


@pytest.mark.parametrize("content", ["{", '{"tiny": {"size_mb": 75}}', "[]"])
def test_a_damaged_file_counts_as_empty(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    assert read_recordings_benchmarks(tmp_path) == {}
