"""A folder is refused with a clear message before the library sees it, which would end the
process."""

import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from core.errors import ConfigError, EngineMissing
from engines.asr.sherpa import Settings, describe
from engines.asr.sherpa.families import FAMILIES
from engines.asr.sherpa.hotwords import as_vocabulary, phrases
from engines.asr.sherpa.model_folder import read_model
from tests.conftest import require
from tests.engines.asr.sherpa.tone_models import (
    ZIPFORMER,
    have_sherpa,
    offline_ctc,
    offline_tdt,
    streaming_ctc,
    streaming_nemo,
    streaming_transducer,
)

pytestmark = pytest.mark.live


@pytest.fixture(autouse=True)
def _library() -> None:
    require(have_sherpa(), "sherpa-onnx and onnx are not installed")


BUILDERS = {
    "zipformer2-streaming-ctc": streaming_ctc,
    "zipformer2-transducer": streaming_transducer,
    "nemo-streaming-transducer": streaming_nemo,
    "zipformer-ctc": offline_ctc,
    "wenet-ctc": lambda folder: offline_ctc(folder, "wenet_ctc"),
    "nemo-transducer": offline_tdt,
}


@pytest.mark.parametrize(("family", "build"), BUILDERS.items())
def test_the_notes_tell_the_family(
    family: str, build: Callable[[Path], Path], tmp_path: Path
) -> None:
    model = read_model(build(tmp_path))
    assert model.family.name == family
    assert read_model(tmp_path, family) == model


def edit(folder: Path, name: str, old: bytes, new: bytes) -> Path:
    """Replaces bytes of a file by as many others."""
    file = folder / name
    data = file.read_bytes()
    assert old in data
    assert len(old) == len(new)
    file.write_bytes(data.replace(old, new))
    return folder


def without(folder: Path, name: str) -> Path:
    (folder / name).unlink()
    return folder


def with_text(folder: Path, name: str, text: str | bytes) -> Path:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def swapped(folder: Path, one: str, two: str) -> Path:
    (folder / one).rename(folder / "swap")
    (folder / two).rename(folder / one)
    (folder / "swap").rename(folder / two)
    return folder


def without_note(key: str) -> Callable[[Path], Path]:
    """Returns a function that makes a model whose note has another key of the same length."""
    head = b"\x0a" + bytes([len(key)])
    return lambda folder: edit(
        streaming_ctc(folder), CTC, head + key.encode(), head + b"x" * len(key)
    )


CTC, ENCODER = "model.int8.onnx", "encoder-epoch-99-avg-1.onnx"
DECODER, JOINER = "decoder-epoch-99-avg-1.onnx", "joiner-epoch-99-avg-1.onnx"
BROKEN: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no tokens": (lambda to: without(streaming_ctc(to), "tokens.txt"), "has no tokens.txt"),
    "empty tokens": (lambda to: with_text(streaming_ctc(to), "tokens.txt", ""), "has no tokens"),
    "tokens of another form": (
        lambda to: with_text(streaming_ctc(to), "tokens.txt", "<blk> 0\nturn\n"),
        "line 2 does not have the form `token id`",
    ),
    "binary tokens": (
        lambda to: with_text(streaming_ctc(to), "tokens.txt", b"\xff\xfe\x00"),
        "cannot be read as text",
    ),
    "too few tokens": (
        lambda to: with_text(streaming_ctc(to), "tokens.txt", "<blk> 0\n▁turn 1\n"),
        "has 2 tokens, and the model has 6",
    ),
    "no blank": (
        lambda to: with_text(
            streaming_ctc(to), "tokens.txt", "".join(f"t{n} {n}\n" for n in range(6))
        ),
        "no blank token",
    ),
    "no ONNX file": (
        lambda to: with_text(streaming_ctc(to), CTC, b"hello" * 99),
        "no ONNX file, or damaged",
    ),
    "empty file": (lambda to: with_text(streaming_ctc(to), CTC, b""), "no ONNX file, or damaged"),
    "truncated file": (
        lambda to: with_text(streaming_ctc(to), CTC, (to / CTC).read_bytes()[:3000]),
        "no ONNX file, or damaged",
    ),
    **{f"no note {key}": (without_note(key), f"lacks the notes {key}") for key in ZIPFORMER},
    "a note that is no number": (
        lambda to: streaming_ctc(to, T="many"),
        "the note T is 'many', not a number from 1",
    ),
    "decoder and joiner swapped": (
        lambda to: swapped(streaming_transducer(to), DECODER, JOINER),
        "lacks the notes vocab_size, context_size",
    ),
    "encoder and joiner swapped": (
        lambda to: swapped(streaming_transducer(to), ENCODER, JOINER),
        "lacks the notes",
    ),
    "no joiner": (lambda to: without(streaming_transducer(to), JOINER), "fit no family"),
    "a model of another kind": (
        lambda to: edit(streaming_transducer(to), ENCODER, b"zipformer2", b"hexformer3"),
        "its model_type is 'hexformer3', not zipformer2",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_the_library_dies_of_is_refused_by_name(case: str, tmp_path: Path) -> None:
    build, message = BROKEN[case]
    with pytest.raises(ConfigError, match=message.replace("(", r"\(")) as caught:
        describe(Settings(model=str(build(tmp_path))))
    assert str(tmp_path) in str(caught.value)


def test_a_missing_model_is_missing(tmp_path: Path) -> None:
    with pytest.raises(EngineMissing, match="there is no folder"):
        describe(Settings(model=str(tmp_path / "nowhere")))
    with pytest.raises(EngineMissing, match=r"holds no \.onnx file"):
        describe(Settings(model=str(tmp_path)))


def test_a_family_is_checked_against_the_files(tmp_path: Path) -> None:
    folder = streaming_ctc(tmp_path)
    with pytest.raises(ConfigError, match="no family 'zipper'; there are: auto, zipformer2-"):
        describe(Settings(model=str(folder), family="zipper"))
    with pytest.raises(ConfigError, match="this is no nemo-ctc: its model lacks the notes vocab_"):
        describe(Settings(model=str(folder), family="nemo-ctc"))


def test_a_search_is_refused_where_the_library_has_none(tmp_path: Path) -> None:
    settings = Settings(model=str(streaming_ctc(tmp_path)), decoding="modified_beam_search")
    with pytest.raises(ConfigError, match="can only do greedy_search, not modified_beam_search"):
        describe(settings)


def test_hot_words_need_a_search_and_pieces_of_words(tmp_path: Path) -> None:
    folder = streaming_transducer(tmp_path)
    search = Settings(model=str(folder), decoding="modified_beam_search")
    assert "hotwords" in describe(search).supports
    assert "hotwords" not in describe(Settings(model=str(folder))).supports
    (folder / "bpe.vocab").unlink()
    assert "hotwords" not in describe(search).supports


def test_weights_of_8_bits_come_first(tmp_path: Path) -> None:
    folder = streaming_transducer(tmp_path)
    shutil.copy(folder / ENCODER, folder / "encoder-epoch-99-avg-1.int8.onnx")
    assert read_model(folder).files["encoder"].name == "encoder-epoch-99-avg-1.int8.onnx"


def test_the_languages_are_those_of_the_settings_the_files_or_the_release(tmp_path: Path) -> None:
    def languages(folder: Path, *wanted: str) -> tuple[str, ...]:
        return describe(Settings(model=str(folder), languages=wanted)).languages

    release = tmp_path / "sherpa-onnx-nemo-parakeet-tdt-0.6b-v3-int8"
    assert len(languages(offline_tdt(release))) == 25
    assert languages(streaming_nemo(tmp_path / "nemotron")) == ("en", "de")
    assert languages(streaming_ctc(tmp_path / "mine")) == ("en",)
    assert languages(streaming_ctc(tmp_path / "mine"), "fr") == ("fr",)


def test_each_family_is_found_before_those_with_fewer_notes() -> None:
    """Otherwise a model would be taken for one of a family that asks for less."""
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for family in FAMILIES:
        assert family.is_streaming == (family.window_keys is not None)
        assert set(family.window_keys or ()) <= set(family.notes[family.parts[0]])


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("", ""),
        ("Anna, living room", "Anna/living room"),
        ("a;b/c\nd", "a/b/c/d"),
        ("turn :2.0, light #0.3 @name", "turn 2 0/light 0 3 name"),
        ("it's ok,,  ,well-known", "it's ok/well-known"),
        ("灯,Küche", "灯/Küche"),
    ],
)
def test_hot_words_are_phrases_without_settings(text: str, taken: str) -> None:
    assert phrases(text, is_upper_case=False) == taken
    assert phrases(text, is_upper_case=True) == taken.upper()


def test_pieces_of_words_are_read_from_sentencepiece(tmp_path: Path) -> None:
    def piece(text: str, score: float) -> bytes:
        data = text.encode()
        body = b"\x0a" + bytes([len(data)]) + data + b"\x15" + struct.pack("<f", score)
        return b"\x0a" + bytes([len(body)]) + body

    model = tmp_path / "bpe.model"
    model.write_bytes(piece("<unk>", 0) + piece("▁turn", -3.5))
    written = as_vocabulary(model, tmp_path / "out.vocab")
    assert written.read_text(encoding="utf-8") == "<unk>\t0\n▁turn\t-3.5\n"
    model.write_bytes(b"")
    with pytest.raises(ValueError, match="holds no pieces"):
        as_vocabulary(model, tmp_path / "out.vocab")


@pytest.mark.real
@pytest.mark.parametrize("case", ["no note T", "decoder and joiner swapped", "no ONNX file"])
def test_the_library_itself_would_end_the_process(case: str, tmp_path: Path) -> None:
    """The reason for the check. If this fails, the library has become kinder."""
    build, _ = BROKEN[case]
    folder = build(tmp_path)
    files = {"model": CTC} if (folder / CTC).is_file() else {}
    files = files or {"encoder": ENCODER, "decoder": DECODER, "joiner": JOINER}
    loader = "from_zipformer2_ctc" if "model" in files else "from_transducer"
    arguments = {part: str(folder / name) for part, name in files.items()}
    arguments["tokens"] = str(folder / "tokens.txt")
    code = f"import sherpa_onnx; sherpa_onnx.OnlineRecognizer.{loader}(**{arguments!r})"
    command = [sys.executable, "-c", code]
    ended = subprocess.run(command, check=False, capture_output=True, timeout=60)
    assert ended.returncode == (1 if case == "no ONNX file" else 255)
