"""Models of sherpa-onnx: their names in the configuration, and what is offered of them."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from core.errors import ConfigError, EngineMissing
from engines.registry import EngineAvailability
from serving.placement.choose import EnginePreference, WhisperWeights, select_engine
from serving.placement.hardware import Hardware
from serving.placement.offers import LoadableModel, OfferInputs, asr_model_offers
from serving.placement.sherpa import SherpaWeights, find_sherpa, sherpa_at, with_folder

ALL = tuple(
    EngineAvailability(name, True, "") for name in ("faster_whisper", "pocketsphinx", "sherpa")
)
WITHOUT = (*ALL[:2], EngineAvailability("sherpa", False, "not installed; `earshot extras add ...`"))
LAPTOP = Hardware(4, 16.0)
TINY = WhisperWeights(Path("m/faster-whisper-tiny"), 75)
PARAKEET = SherpaWeights(Path("m/sherpa-onnx-nemo-parakeet-tdt-0.6b-v3-int8"), 640)
SMALL = SherpaWeights(Path("m/sherpa-onnx-streaming-zipformer-en-20M-2023-02-17"), 42)


def offered(
    wanted: EnginePreference, engines: tuple[EngineAvailability, ...] = ALL
) -> Mapping[str, LoadableModel]:
    choice = select_engine("asr", wanted, engines, [TINY], LAPTOP)
    inputs = OfferInputs(LAPTOP, engines, wanted, choice)
    return {offer.name: offer for offer in asr_model_offers(inputs, [TINY], [PARAKEET, SMALL])}


def make(models_dir: Path, *names: str) -> None:
    for name in names:
        (models_dir / name).mkdir(parents=True)
        (models_dir / name / "model.int8.onnx").write_bytes(b"x" * 2_000_000)
        (models_dir / name / "tokens.txt").write_text("<blk> 0\n")


def test_models_of_the_folder_are_offered_and_never_chosen_by_auto() -> None:
    found = offered(EnginePreference())
    assert list(found) == [TINY.name, PARAKEET.name, SMALL.name, "pocketsphinx"]
    offer = found[PARAKEET.name]
    assert (offer.engine, offer.aliases) == ("sherpa", (f"sherpa:{PARAKEET.name}",))
    assert offer.options == {"model": str(PARAKEET.path)}
    assert offer.memory_mb == {"cpu": pytest.approx(892)}
    assert PARAKEET.name not in offered(EnginePreference(), WITHOUT)
    alone = select_engine("asr", EnginePreference(), ALL, [], LAPTOP)
    assert alone.name == "pocketsphinx"


def test_a_configured_model_comes_first_with_its_settings() -> None:
    options = {"model": str(SMALL.path), "threads": 3}
    found = offered(EnginePreference("sherpa", options, workers=2))
    first = next(iter(found.values()))
    assert (first.name, first.engine) == (SMALL.name, "sherpa")
    assert first.workers == (options, options)
    assert "sherpa" in first.aliases
    assert list(found).count(SMALL.name) == 1
    assert found[PARAKEET.name].workers == ({"model": str(PARAKEET.path)},)


@pytest.mark.parametrize(
    "wanted",
    [
        EnginePreference(model="sherpa:parakeet"),
        EnginePreference("sherpa", model="sherpa:parakeet"),
        EnginePreference("sherpa", model="parakeet"),
    ],
)
def test_a_model_is_named_with_its_engine(wanted: EnginePreference) -> None:
    choice = select_engine("asr", wanted, ALL, [TINY], LAPTOP)
    assert (choice.name, choice.options) == ("sherpa", {"model": "parakeet"})


def test_a_name_that_contradicts_the_engine_is_refused() -> None:
    wanted = EnginePreference("faster_whisper", model="sherpa:parakeet")
    with pytest.raises(ConfigError, match=r"asr.model is for sherpa, and asr.engine is 'faster_wh"):
        select_engine("asr", wanted, ALL, [TINY], LAPTOP)
    with pytest.raises(EngineMissing, match="earshot extras add"):
        select_engine("asr", EnginePreference(model="sherpa:x"), WITHOUT, [TINY], LAPTOP)


def test_the_models_folder_is_read_by_the_names_of_files(tmp_path: Path) -> None:
    make(tmp_path, "sherpa-onnx-one", "two", ".three.partial")
    (tmp_path / "voice").mkdir()
    (tmp_path / "voice" / "en_US.onnx").touch()
    assert [model.name for model in find_sherpa(tmp_path)] == ["sherpa-onnx-one", "two"]
    assert find_sherpa(tmp_path / "nowhere") == ()
    assert sherpa_at(tmp_path / "two").size_mb == 2
    assert sherpa_at(tmp_path / "nowhere").size_mb == 0


def test_a_name_becomes_a_folder(tmp_path: Path) -> None:
    make(tmp_path, "sherpa-onnx-one")
    folder = str(tmp_path / "sherpa-onnx-one")
    for name in ("one", "sherpa-onnx-one", "sherpa:one", ""):
        assert with_folder({"model": name, "threads": 1}, tmp_path) == {
            "model": folder,
            "threads": 1,
        }
    assert with_folder({"model": "./mine"}, tmp_path) == {"model": "./mine"}
    make(tmp_path, "two")
    with pytest.raises(ConfigError, match=r"name one model .*there are: sherpa-onnx-one, two; `ea"):
        with_folder({}, tmp_path)


def test_a_keyword_spotter_is_no_recogniser(tmp_path: Path) -> None:
    spotter = "sherpa-onnx-kws-zipformer-zh-en-3M-2025-12-20"
    make(tmp_path, spotter, SMALL.name)
    assert [model.name for model in find_sherpa(tmp_path)] == [SMALL.name]
    assert with_folder({}, tmp_path) == {"model": str(tmp_path / SMALL.name)}
    assert with_folder({}, tmp_path, "wake") == {"model": str(tmp_path / spotter)}
    with pytest.raises(ConfigError, match=r"wake\.options\.model: no model .* there are: .*kws-"):
        with_folder({"model": SMALL.name}, tmp_path, "wake")
