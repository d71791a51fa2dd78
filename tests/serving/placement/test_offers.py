"""The recognition models on offer, their names, and where each would run."""

from pathlib import Path

import pytest

from core.errors import EngineMissing
from engines.registry import EngineAvailability
from serving.placement.choose import EnginePreference, WhisperWeights, select_engine
from serving.placement.hardware import Gpu, Hardware
from serving.placement.offers import LoadableModel, OfferInputs, asr_model_offers

TINY = WhisperWeights(Path("m/faster-whisper-tiny"), 75)
SMALL = WhisperWeights(Path("m/faster-whisper-small"), 484)
TURBO = WhisperWeights(Path("m/faster-whisper-large-v3-turbo"), 1620)
NANO = WhisperWeights(Path("m/whisper-nano"), 8)
ALL = (TINY, SMALL, TURBO, NANO)

BOTH = (
    EngineAvailability("faster_whisper", True, ""),
    EngineAvailability("pocketsphinx", True, ""),
)

LAPTOP = Hardware(4, 16.0)
CARD = Hardware(16, 64.0, (Gpu("RTX 3060", 12.0, 6.0, "8.6", "550.1"),))
TWINS = Hardware(16, 64.0, tuple(Gpu("A10", 24.0, 23.0, "8.6", "550.1", index) for index in (0, 1)))


def offered(
    hardware: Hardware, wanted: EnginePreference, *weights: WhisperWeights
) -> dict[str, LoadableModel]:
    choice = select_engine("asr", wanted, BOTH, weights, hardware)
    found = asr_model_offers(OfferInputs(hardware, BOTH, wanted, choice), weights)
    return {offer.name: offer for offer in found}


def test_every_model_folder_and_pocketsphinx_are_offered() -> None:
    found = offered(LAPTOP, EnginePreference(), *ALL)
    assert list(found) == [
        "faster-whisper-tiny",
        "faster-whisper-small",
        "faster-whisper-large-v3-turbo",
        "whisper-nano",
        "pocketsphinx",
    ]
    assert found["faster-whisper-tiny"].aliases == ("tiny", "faster_whisper")
    assert found["faster-whisper-small"].aliases == ("small",)
    assert found["whisper-nano"].aliases == ()
    assert found["pocketsphinx"].engine == "pocketsphinx"
    assert found["pocketsphinx"].memory_mb == {"cpu": 150}


def test_the_name_of_an_unchosen_engine_stands_for_its_best_model() -> None:
    found = offered(LAPTOP, EnginePreference("pocketsphinx", workers=3), *ALL)
    assert next(iter(found)) == "pocketsphinx"
    assert len(found["pocketsphinx"].workers) == 3
    assert [name for name, one in found.items() if "faster_whisper" in one.aliases] == [
        "faster-whisper-tiny"
    ]


def test_options_apply_to_all_models_of_the_chosen_engine() -> None:
    found = offered(
        LAPTOP, EnginePreference(options={"beam_size": 5, "device": "auto"}), TINY, SMALL
    )
    for offer in (found["faster-whisper-tiny"], found["faster-whisper-small"]):
        assert offer.options["beam_size"] == 5
        assert offer.options["device"] == "cpu"
        assert offer.options["model"].endswith(offer.name)
    assert found["pocketsphinx"].options == {}


def test_a_path_outside_the_folder_is_offered_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.bin").write_bytes(bytes(2_000_000))
    found = offered(LAPTOP, EnginePreference(model=str(tmp_path / "mine")), TINY)
    assert list(found) == ["mine", "faster-whisper-tiny", "pocketsphinx"]
    assert found["mine"].size_mb == 2.0
    missing = offered(LAPTOP, EnginePreference(model="/no/weights"), TINY)
    assert missing["weights"].size_mb == 0  # loading it reports the error


def test_other_models_use_the_memory_that_the_chosen_one_leaves() -> None:
    found = offered(CARD, EnginePreference(), TURBO, SMALL)
    chosen, other = found["faster-whisper-large-v3-turbo"], found["faster-whisper-small"]
    assert chosen.options["device"] == other.options["device"] == "cuda"
    assert chosen.options["max_batch"] == 8
    room = 0.9 * 6 * 1024
    assert chosen.memory_mb["cuda:0"] + other.memory_mb["cuda:0"] <= room
    third = offered(
        CARD, EnginePreference(model="large-v3-turbo"), TURBO, WhisperWeights(Path("m/large"), 3000)
    )
    assert third["large"].options["device"] == "cpu"
    assert "has room for" in third["large"].warnings[0]


def test_a_gpu_model_falls_back_to_the_processor_unless_cuda_is_configured() -> None:
    chosen = offered(CARD, EnginePreference(options={"compute_type": "float16"}), TURBO)
    fallback = chosen["faster-whisper-large-v3-turbo"].fallback
    assert fallback is not None
    assert (fallback.options["device"], fallback.options["compute_type"]) == ("cpu", "int8")
    demanded = offered(CARD, EnginePreference(options={"device": "cuda"}), TURBO)
    assert demanded["faster-whisper-large-v3-turbo"].fallback is None
    assert offered(LAPTOP, EnginePreference(), TINY)["faster-whisper-tiny"].fallback is None


def test_each_gpu_gets_a_worker() -> None:
    chosen = offered(TWINS, EnginePreference(), TURBO)["faster-whisper-large-v3-turbo"]
    assert [options.get("device_index", 0) for options in chosen.workers] == [0, 1]
    assert set(chosen.memory_mb) == {"cuda:0", "cuda:1"}


def test_a_configured_gpu_that_is_missing_fails_the_start() -> None:
    wanted = EnginePreference(model="tiny", options={"device": "cuda"})
    with pytest.raises(EngineMissing, match=r"asr\.options\.device is cuda"):
        offered(LAPTOP, wanted, TINY)
