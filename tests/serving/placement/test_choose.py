"""The engine chosen for each machine, and the sentence with the reason."""

from collections.abc import Sequence
from pathlib import Path
from re import search

import pytest

from core.errors import ConfigError, EngineMissing
from engines.registry import EngineAvailability
from serving.placement.choose import (
    WHISPER_FILES,
    EnginePreference,
    WhisperWeights,
    find_whisper,
    select_engine,
    weights_at,
    worker_count,
)
from serving.placement.hardware import Gpu, Hardware
from tests.server.models.fake_hub import weights_file
from tests.shared import ROOT

TINY = WhisperWeights(Path("m/faster-whisper-tiny"), 75)
BASE = WhisperWeights(Path("m/faster-whisper-base"), 145)
TINY_EN = WhisperWeights(Path("m/faster-whisper-tiny.en"), 75, is_multilingual=False)
BASE_EN = WhisperWeights(Path("m/faster-whisper-base.en"), 145, is_multilingual=False)
TURBO = WhisperWeights(Path("m/faster-whisper-large-v3-turbo"), 1620)

LAPTOP = Hardware(4, 16.0)
BOARD = Hardware(2, 2.0)
WORKSTATION = Hardware(16, 64.0, (Gpu("NVIDIA L4", 22.5, 22.0, "8.9"),))


def known(*names: str, missing: tuple[str, ...] = ()) -> list[EngineAvailability]:
    there = [EngineAvailability(name, installed=True, reason="") for name in names]
    return there + [
        EngineAvailability(n, installed=False, reason=f"pip install {n}") for n in missing
    ]


def folder(path: Path, files: Sequence[str] = WHISPER_FILES, content: bytes = b"") -> None:
    """Makes a model's folder. `content`: its `model.bin`."""
    path.mkdir()
    for file in files:
        (path / file).write_bytes(content or weights_file(1000))


BOTH = known("faster_whisper", "pocketsphinx")


@pytest.mark.parametrize(
    ("weights", "hardware", "name", "model", "why"),
    [
        ((), LAPTOP, "pocketsphinx", None, "no Whisper weights in the models folder"),
        ((TINY, BASE, TURBO), LAPTOP, "faster_whisper", BASE, "largest Whisper .* suits 4 cores"),
        ((TINY, BASE, TURBO), BOARD, "faster_whisper", TINY, "suits 2 cores"),
        ((TINY, BASE, TURBO), WORKSTATION, "faster_whisper", TURBO, "suits NVIDIA L4"),
        ((TURBO,), BOARD, "faster_whisper", TURBO, "large for 2 cores"),
    ],
)
def test_auto_chooses_the_recogniser_for_the_machine(
    weights: tuple[WhisperWeights, ...],
    hardware: Hardware,
    name: str,
    model: WhisperWeights | None,
    why: str,
) -> None:
    choice = select_engine("asr", EnginePreference(), BOTH, weights, hardware)
    assert choice.name == name
    assert choice.options.get("model") == (str(model.path) if model else None)
    assert search(why, choice.why)


def test_weights_without_their_library_are_named_in_the_reason() -> None:
    engines = known("pocketsphinx", missing=("faster_whisper",))
    choice = select_engine("asr", EnginePreference(), engines, [TINY], LAPTOP)
    assert choice.name == "pocketsphinx"
    assert "faster_whisper is not installed" in choice.why


def test_a_configured_engine_is_chosen_with_its_options() -> None:
    choice = select_engine("asr", EnginePreference("pocketsphinx", {"x": 1}), BOTH, [TINY], LAPTOP)
    assert (choice.name, choice.options, choice.why) == (
        "pocketsphinx",
        {"x": 1},
        "it is configured",
    )
    third_party = select_engine("tts", EnginePreference("acme.voice"), known("espeak"), (), LAPTOP)
    assert third_party.name == "acme.voice"


def test_whisper_takes_weights_of_the_models_folder_unless_configured() -> None:
    found = select_engine(
        "asr", EnginePreference("faster_whisper", {"beam_size": 2}), BOTH, [TINY], LAPTOP
    )
    assert found.options == {"model": str(TINY.path), "beam_size": 2}
    told = select_engine(
        "asr", EnginePreference("faster_whisper", {"model": "/w"}), BOTH, (), LAPTOP
    )
    assert told.options == {"model": "/w"}
    with pytest.raises(EngineMissing, match=r"asr\.model"):
        select_engine("asr", EnginePreference("faster_whisper"), BOTH, (), LAPTOP)


def test_the_error_for_a_missing_library_says_how_to_install_it() -> None:
    with pytest.raises(EngineMissing, match="pip install silero"):
        select_engine(
            "vad", EnginePreference("silero"), known("webrtc", missing=("silero",)), (), LAPTOP
        )
    with pytest.raises(EngineMissing, match="espeak: pip install espeak"):
        select_engine("tts", EnginePreference(), known(missing=("espeak",)), (), LAPTOP)
    engines = known("faster_whisper", missing=("pocketsphinx",))
    with pytest.raises(EngineMissing, match=r"faster_whisper: has no weights; `earshot models pu"):
        select_engine("asr", EnginePreference(), engines, (), LAPTOP)


def test_a_broken_engine_of_a_package_names_the_package() -> None:
    broken = EngineAvailability("robot", installed=False, reason="broken: no", origin="acme 1.0")
    with pytest.raises(
        EngineMissing, match=r"tts engine 'robot': the engine of acme 1\.0 is broken: no"
    ):
        select_engine("tts", EnginePreference("robot"), [broken], [], LAPTOP)


def test_vad_engines_are_preferred_in_order() -> None:
    assert (
        select_engine(
            "vad", EnginePreference(), known("gated", "silero", "webrtc"), (), LAPTOP
        ).name
        == "gated"
    )
    engines = known("webrtc", missing=("gated", "silero"))
    assert select_engine("vad", EnginePreference(), engines, (), LAPTOP).name == "webrtc"


def test_smart_turn_is_chosen_only_with_weights() -> None:
    def endpoint(wanted: EnginePreference, *, has_weights: bool) -> str:
        engines = [
            EngineAvailability("silence", installed=True, reason=""),
            EngineAvailability("smart_turn", True, "no weights", needs_path=not has_weights),
        ]
        return select_engine("endpoint", wanted, engines, (), LAPTOP).name

    assert endpoint(EnginePreference(), has_weights=True) == "smart_turn"
    assert endpoint(EnginePreference(), has_weights=False) == "silence"
    assert endpoint(EnginePreference(options={"path": "/w"}), has_weights=False) == "smart_turn"
    assert endpoint(EnginePreference("silence"), has_weights=True) == "silence"
    without = known("silence", missing=("smart_turn",))
    assert select_engine("endpoint", EnginePreference(), without, (), LAPTOP).name == "silence"


def test_only_complete_models_of_the_folder_are_found(tmp_path: Path) -> None:
    assert find_whisper(tmp_path / "nothing") == ()
    for name in ("whole", ".half", "whisper-nano", "broken"):
        folder(tmp_path / name, WHISPER_FILES[: 1 if name == "broken" else None])
    (tmp_path / "file").touch()
    assert [found.name for found in find_whisper(tmp_path)] == ["whisper-nano", "whole"]


def test_the_choice_does_not_depend_on_the_storage_type_of_weights() -> None:
    nano = weights_at(ROOT / "tests" / "fixtures" / "whisper-nano")
    assert (nano.kind, round(nano.size_mb)) == ("float16", 8)
    small8 = WhisperWeights(Path("m/small-int8"), 245, "int8")
    assert small8.float16_mb == 490
    choice = select_engine("asr", EnginePreference(), BOTH, [BASE, small8], LAPTOP)
    assert choice.options["model"] == str(BASE.path)  # 245 MB of int8 are "small": too slow
    tiny32 = WhisperWeights(Path("m/tiny-float32"), 150, "float32")
    assert select_engine("asr", EnginePreference(), BOTH, [tiny32], BOARD).why.endswith(
        "suits 2 cores"
    )


def test_an_unreadable_model_is_ignored_and_an_unreadable_folder_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mounted volume has a folder lost+found, which only root may read."""
    for name in ("lost+found", "whole"):
        folder(tmp_path / name)
    is_file = Path.is_file

    def refuse(path: Path) -> bool:
        if path.parent.name == "lost+found":
            raise PermissionError(13, "Permission denied")
        return is_file(path)

    def refuse_all(path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_file", refuse)
    assert [weights.name for weights in find_whisper(tmp_path)] == ["whole"]
    monkeypatch.setattr(Path, "iterdir", refuse_all)
    with pytest.raises(ConfigError, match=r"paths\.models_dir .*: Permission denied"):
        find_whisper(tmp_path)


def test_the_test_model_is_chosen_only_by_name() -> None:
    nano = WhisperWeights(Path("m/whisper-nano"), 8)
    assert select_engine("asr", EnginePreference(), BOTH, [nano], LAPTOP).name == "pocketsphinx"
    assert select_engine("asr", EnginePreference(), BOTH, [nano, TINY], BOARD).options[
        "model"
    ] == str(TINY.path)
    alone = select_engine("asr", EnginePreference(), BOTH, [nano], LAPTOP)
    assert alone.why == (
        "no Whisper in the models folder that may be chosen: whisper-nano is a fixture for tests"
        " that knows 200 words; pocketsphinx needs none"
    )
    with pytest.raises(EngineMissing, match="whisper-nano is a fixture for tests"):
        select_engine("asr", EnginePreference("faster_whisper"), BOTH, [nano], LAPTOP)
    by_name = select_engine("asr", EnginePreference(model="whisper-nano"), BOTH, [nano], LAPTOP)
    assert by_name.options == {"model": str(nano.path)}


def test_a_folder_of_an_unknown_name_is_chosen_and_a_damaged_one_is_not(tmp_path: Path) -> None:
    folder(tmp_path / "my-whisper")
    folder(tmp_path / "torn", content=weights_file(1000)[:500])
    folder(tmp_path / "translator", content=weights_file(1000, spec="MarianSpec"))
    choice = select_engine("asr", EnginePreference(), BOTH, find_whisper(tmp_path), LAPTOP)
    assert choice.options == {"model": str(tmp_path / "my-whisper")}
    damaged = [one for one in find_whisper(tmp_path) if one.name != "my-whisper"]
    choice = select_engine("asr", EnginePreference(), BOTH, damaged, LAPTOP)
    assert choice.name == "pocketsphinx"
    assert search(r"torn is damaged \(.*incomplete.*translator is damaged .*Marian", choice.why)


@pytest.mark.parametrize(
    ("content", "languages"),
    [(weights_file(1000, vocabulary=51_864), "English"), (weights_file(1000), "many")],
)
def test_the_vocabulary_says_whether_a_model_is_multilingual(
    content: bytes, languages: str, tmp_path: Path
) -> None:
    folder(tmp_path / "mine", content=content)
    weights = weights_at(tmp_path / "mine")
    assert weights.knows("en")
    assert weights.knows("de") == (languages == "many")


@pytest.mark.parametrize(
    ("language", "weights", "model", "why"),
    [
        ("en", (BASE, BASE_EN), BASE_EN, "base.en is the largest Whisper .* suits 4 cores$"),
        ("en", (BASE, TINY_EN), BASE, "base is the largest"),
        ("de", (TINY, BASE_EN), TINY, "not for 'de', as English only: faster-whisper-base.en"),
        ("de", (TINY_EN,), TINY_EN, "the language is 'de', and .*tiny.en knows English only"),
    ],
)
def test_the_language_decides_between_multilingual_and_english_models(
    language: str, weights: tuple[WhisperWeights, ...], model: WhisperWeights, why: str
) -> None:
    choice = select_engine("asr", EnginePreference(language=language), BOTH, weights, LAPTOP)
    assert choice.options == {"model": str(model.path)}
    assert search(why, choice.why)


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("tiny", TINY.path),
        ("faster-whisper-tiny", TINY.path),
        ("openai/whisper-tiny", TINY.path),
        ("turbo", TURBO.path),
        ("/weights/mine", "/weights/mine"),
    ],
)
def test_a_model_is_chosen_by_name_or_path(model: str, path: Path | str) -> None:
    weights = [TINY, BASE, TURBO]
    choice = select_engine(
        "asr", EnginePreference(model=model, options={"beam_size": 2}), BOTH, weights, LAPTOP
    )
    assert choice.name == "faster_whisper"
    assert choice.options == {"model": str(path), "beam_size": 2}
    assert choice.why == "it is configured"


def test_an_engine_may_be_chosen_as_the_model() -> None:
    choice = select_engine("asr", EnginePreference(model="pocketsphinx"), BOTH, [TINY], LAPTOP)
    assert (choice.name, choice.options) == ("pocketsphinx", {})


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (
            EnginePreference(model="tinny"),
            "asr.model: no model 'tinny'; similar: .*faster-whisper-tiny",
        ),
        (EnginePreference(model="small"), "there are: .*`earshot models pull small` fetches it"),
        (
            EnginePreference("pocketsphinx", model="tiny"),
            "asr.model is for faster_whisper, and asr.engine",
        ),
        (EnginePreference("faster_whisper", model="pocketsphinx"), "set only one of them"),
        (EnginePreference(model="tiny", options={"model": "/w"}), "asr.options.model are both set"),
    ],
)
def test_an_impossible_model_is_refused_with_the_reason(
    wanted: EnginePreference, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        select_engine("asr", wanted, BOTH, [TINY, TURBO], LAPTOP)


def test_configured_memory_limits_the_choice() -> None:
    weights = [TINY, BASE, TURBO]
    choice = select_engine("asr", EnginePreference(memory_mb=1500), BOTH, weights, WORKSTATION)
    assert choice.options["model"] == str(BASE.path)


@pytest.mark.parametrize(
    ("name", "cores", "count"),
    [("pocketsphinx", 1, 1), ("pocketsphinx", 2, 2), ("pocketsphinx", 64, 2), ("acme.asr", 64, 1)],
)
def test_single_threaded_recognisers_get_a_second_process(
    name: str, cores: int, count: int
) -> None:
    assert worker_count(name, Hardware(cores, 16.0)) == count
