"""Which engine is chosen on which machine, and the sentence that says why."""

from pathlib import Path
from re import search

import pytest

from core.errors import EngineMissing
from engines.registry import Available
from serving.choose import (
    WHISPER,
    WHISPER_FILES,
    Wanted,
    Weights,
    choose,
    find_whisper,
    worker_count,
)
from serving.hardware import Gpu, Hardware, parse_gpus

TINY = Weights(Path("m/faster-whisper-tiny"), 75)
BASE = Weights(Path("m/faster-whisper-base"), 145)
TURBO = Weights(Path("m/faster-whisper-large-v3-turbo"), 1620)

LAPTOP = Hardware(4, 16.0)
BOARD = Hardware(2, 2.0)
WORKSTATION = Hardware(16, 64.0, (Gpu("NVIDIA L4", 22.5, 22.0, "8.9"),))


def known(*names: str, missing: tuple[str, ...] = ()) -> list[Available]:
    there = [Available(name, installed=True, reason="") for name in names]
    return there + [Available(n, installed=False, reason=f"pip install {n}") for n in missing]


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
def test_auto_asr(
    weights: tuple[Weights, ...], hardware: Hardware, name: str, model: Weights | None, why: str
) -> None:
    choice = choose("asr", Wanted(), BOTH, weights, hardware)
    assert choice.name == name
    assert choice.options.get("model") == (str(model.path) if model else None)
    assert search(why, choice.why)


def test_weights_without_their_library_are_told() -> None:
    engines = known("pocketsphinx", missing=("faster_whisper",))
    choice = choose("asr", Wanted(), engines, [TINY], LAPTOP)
    assert choice.name == "pocketsphinx"
    assert "faster_whisper is not installed" in choice.why


def test_a_configured_engine_is_taken_with_its_options() -> None:
    choice = choose("asr", Wanted("pocketsphinx", {"x": 1}), BOTH, [TINY], LAPTOP)
    assert (choice.name, choice.options, choice.why) == (
        "pocketsphinx",
        {"x": 1},
        "it is configured",
    )
    third_party = choose("tts", Wanted("acme.voice"), known("espeak"), (), LAPTOP)
    assert third_party.name == "acme.voice"


def test_whisper_by_name_takes_the_models_folder_unless_told() -> None:
    found = choose("asr", Wanted("faster_whisper", {"beam_size": 2}), BOTH, [TINY], LAPTOP)
    assert found.options == {"model": str(TINY.path), "beam_size": 2}
    told = choose("asr", Wanted("faster_whisper", {"model": "/w"}), BOTH, (), LAPTOP)
    assert told.options == {"model": "/w"}
    with pytest.raises(EngineMissing, match=r"asr\.options\.model"):
        choose("asr", Wanted("faster_whisper"), BOTH, (), LAPTOP)


def test_what_is_not_installed_says_how_to_get_it() -> None:
    with pytest.raises(EngineMissing, match="pip install silero"):
        choose("vad", Wanted("silero"), known("webrtc", missing=("silero",)), (), LAPTOP)
    with pytest.raises(EngineMissing, match="espeak: pip install espeak"):
        choose("tts", Wanted(), known(missing=("espeak",)), (), LAPTOP)


def test_the_preferred_order_of_vad() -> None:
    assert choose("vad", Wanted(), known("gated", "silero", "webrtc"), (), LAPTOP).name == "gated"
    engines = known("webrtc", missing=("gated", "silero"))
    assert choose("vad", Wanted(), engines, (), LAPTOP).name == "webrtc"


def test_only_whole_models_of_the_folder_count(tmp_path: Path) -> None:
    assert find_whisper(tmp_path / "nothing") == ()
    for name in ("whole", ".half", "whisper-nano", "broken"):
        (tmp_path / name).mkdir()
        for file in WHISPER_FILES[: 1 if name == "broken" else None]:
            (tmp_path / name / file).write_bytes(b"x" * 1000)
    (tmp_path / "file").touch()
    assert find_whisper(tmp_path) == (Weights(tmp_path / "whole", 0.001),)


def test_gpus_are_read_from_the_drivers_lines() -> None:
    listed = "NVIDIA H200, 143771, 143000, 9.0\nbroken line\nX, [N/A], [N/A], 7.5\n"
    assert parse_gpus(listed) == (Gpu("NVIDIA H200", 143771 / 1024, 143000 / 1024, "9.0"),)


@pytest.mark.parametrize(
    ("name", "cores", "count"),
    [("pocketsphinx", 1, 1), ("pocketsphinx", 2, 2), ("pocketsphinx", 64, 2), (WHISPER, 64, 1)],
)
def test_recognisers_of_one_thread_get_a_second_process(name: str, cores: int, count: int) -> None:
    assert worker_count(name, Hardware(cores, 16.0)) == count
