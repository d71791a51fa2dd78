"""The engine `sherpa` for speakers, with the real library and models that take the mean spectrum as
a voice: vectors, and files that the library would end its process for."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from core.errors import ConfigError, EngineError, EngineMissing
from engines.base.speaker import SpeakerItem, SpeakerModel
from engines.registry import load
from engines.speaker.sherpa import read_info
from engines.speaker.sherpa.model_file import find_speaker_file
from tests.conftest import require
from tests.engines.asr.sherpa.tone_models import have_sherpa, streaming_ctc
from tests.engines.speaker.buzz import buzz_pcm
from tests.engines.speaker.sherpa_models import BANDS, write_nemo_voice_model, write_voice_model

pytestmark = pytest.mark.live

Writer = Callable[..., Path]
BOTH = pytest.mark.parametrize("write", [write_voice_model, write_nemo_voice_model])


@pytest.fixture(autouse=True)
def _library() -> None:
    require(have_sherpa(), "sherpa-onnx and onnx are not installed")


def _open(folder: Path) -> SpeakerModel:
    return load("speaker", "sherpa", {"model": str(folder)})


def _buzz(seconds: float, pitch_hz: float) -> SpeakerItem:
    return SpeakerItem(buzz_pcm(seconds, pitch_hz=pitch_hz).astype("<i2").tobytes())


@BOTH
def test_equal_voices_have_near_vectors_of_length_one(write: Writer, tmp_path: Path) -> None:
    model = _open(write(tmp_path / "voices"))
    assert model.info.dimensions == BANDS
    results = model.embed([_buzz(2, 140), _buzz(3, 141), _buzz(2, 300)])
    anna, again, ben = (np.frombuffer(result.vector, "<f4") for result in results)
    assert np.linalg.norm(anna) == pytest.approx(1, abs=1e-5)
    assert anna @ again > 0.99
    assert anna @ ben < model.info.thresholds.known
    assert results[0].quality.speech_ms >= 1800


@BOTH
@pytest.mark.parametrize("pcm", [b"", b"\0", b"\0" * 32000, _buzz(0.3, 140).pcm])
def test_too_little_speech_gives_no_vector(write: Writer, pcm: bytes, tmp_path: Path) -> None:
    (result,) = _open(write(tmp_path / "voices")).embed([SpeakerItem(pcm)])
    assert result.vector == b""


def test_the_properties_are_read_without_the_library(tmp_path: Path) -> None:
    info = read_info(write_voice_model(tmp_path / "voices", framework="wespeaker"))
    assert (info.name, info.model, info.dimensions) == ("sherpa", "voices", BANDS)
    assert (info.thresholds.known, info.thresholds.guard) == (0.6, 0.7)


@pytest.mark.parametrize(
    ("notes", "why"),
    [
        ({"without": "framework"}, "framework is '', not wespeaker, 3d-speaker, nemo"),
        ({"framework": "kaldi"}, "framework is 'kaldi'"),
        ({"without": "language"}, "lacks the notes language"),
        ({"without": "normalize_samples"}, "lacks the notes normalize_samples"),
        ({"output_dim": "many"}, "output_dim is 'many', not a number from 1"),
        ({"output_dim": "192"}, "vectors have 80 numbers, not 192"),
        ({"sample_rate": "8000"}, "sample_rate is 8000, not 16000"),
        ({"normalize_samples": "yes"}, "normalize_samples is neither 0 nor 1"),
        ({"feature_normalize_type": "per_feature"}, "not 'global-mean'"),
        ({"framework": "nemo"}, "lacks the notes feat_dim, window_size_ms, window_stride_ms"),
    ],
)
def test_a_file_that_would_end_the_process_is_refused(
    notes: dict[str, str], why: str, tmp_path: Path
) -> None:
    folder = write_voice_model(tmp_path / "voices", **notes)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=why):
        _open(folder)


def test_a_general_network_with_the_notes_of_nemo_is_refused(tmp_path: Path) -> None:
    sizes = {"feat_dim": "80", "window_size_ms": "25", "window_stride_ms": "10"}
    folder = write_voice_model(tmp_path / "voices", framework="nemo", **sizes)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="has 1 inputs, not 2"):
        _open(folder)
    with pytest.raises(ConfigError, match="feature_normalize_type is 'global-mean'"):
        _open(write_nemo_voice_model(tmp_path / "other", feature_normalize_type="global-mean"))


def test_a_damaged_file_and_a_missing_one_are_named(tmp_path: Path) -> None:
    folder = write_voice_model(tmp_path / "voices")
    file = folder / "voices.onnx"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(ConfigError, match=r"voices\.onnx is no ONNX file, or damaged"):
        _open(folder)
    assert find_speaker_file(folder) is None
    file.unlink()
    with pytest.raises(EngineMissing, match=r"holds 0 \.onnx files, not 1"):
        _open(folder)
    with pytest.raises(EngineMissing, match="there is no folder"):
        _open(tmp_path / "none")


def test_a_network_for_other_sound_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    """Its notes are right; only its first use shows it."""
    with pytest.raises(EngineError, match="the network fails"):
        _open(write_voice_model(tmp_path / "voices", bands=40))


def test_only_models_that_recognise_speakers_are_found(tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    assert find_speaker_file(write_voice_model(tmp_path / "voices")) is not None
    assert find_speaker_file(streaming_ctc(tmp_path / "words")) is None
    assert find_speaker_file(tmp_path / "none") is None
    assert find_speaker_file(write_voice_model(tmp_path / "bare", without="framework")) is None
