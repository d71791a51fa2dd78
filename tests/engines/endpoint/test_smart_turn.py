"""Smart Turn: features like Whisper's, the search for weights, and the probabilities."""

import csv
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import module_from_spec, spec_from_file_location
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np
import numpy.typing as npt
import pytest
from faster_whisper.feature_extractor import FeatureExtractor

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, silence
from core.errors import EngineError, EngineMissing
from engines.base import EndOfTurnDetector
from engines.endpoint import smart_turn
from engines.endpoint.smart_turn import Settings, calibrate, create, find_weights, log_mel
from engines.registry import EngineAvailability, available, load
from engines.vad.silero.weights import bundled_weights as silero_weights
from media.files.decode import decode_file
from pipeline.shared.settings import TurnDetection
from pipeline.user_turn.speech_detection.endpointing import EdgeKind
from pipeline.user_turn.speech_detection.speech_detector import SpeechDetector
from tests.conftest import require
from tests.shared import shared_data

pytestmark = pytest.mark.live

WHEEL = "pipecat-ai==1.14.0"
DATA = "pipecat/audio/turn/smart_turn"


def test_features_equal_whispers() -> None:
    noise = np.random.default_rng(5).normal(0, 0.1, 8 * ASR_RATE_HZ).astype(np.float32)
    noise[: 5 * ASR_RATE_HZ] = 0
    theirs = FeatureExtractor(80)(noise, padding=0)
    assert log_mel(noise).shape == (80, 800)
    assert np.abs(log_mel(noise) - theirs[:, :800]).max() < 1e-4


def test_calibration_keeps_the_order_and_lowers_high_values() -> None:
    raw = [0.0, 0.01, 0.2, 0.5, 0.9, 0.99, 1.0]
    values = [calibrate(one) for one in raw]
    assert all(a < b for a, b in pairwise(values))
    assert values[1] < 0.1
    assert 0.6 < calibrate(0.97) < 0.75


def test_missing_weights_are_named() -> None:
    with pytest.raises(EngineMissing, match=r"endpoint .*no weights at /nowhere/s.onnx"):
        load("endpoint", "smart_turn", {"path": "/nowhere/s.onnx"})


def test_a_file_of_another_model_is_named(tmp_path: Path) -> None:
    text = tmp_path / "text.onnx"
    text.write_text("hello")
    with pytest.raises(EngineError, match=r"text\.onnx is not an ONNX model"):
        create(Settings(path=str(text)))
    with pytest.raises(EngineError, match="not a smart-turn-v3 model"):
        create(Settings(path=str(silero_weights())))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a pipecat that seems installed and must not be imported."""
    folder = tmp_path / DATA / "data"
    folder.mkdir(parents=True)
    (tmp_path / "pipecat" / "__init__.py").write_text("raise ImportError('too heavy')\n")
    monkeypatch.syspath_prepend(tmp_path)
    return folder


def test_installed_weights_are_found_without_an_import(installed: Path) -> None:
    nothing = EngineAvailability("smart_turn", True, smart_turn.missing_weights(), needs_path=True)
    assert "earshot models pull smart-turn-v3" in nothing.reason
    assert nothing in available("endpoint")
    with pytest.raises(EngineMissing, match="earshot models pull smart-turn-v3"):
        create(Settings())
    for name in ("smart-turn-v3.1-cpu.onnx", "smart-turn-v3.2-cpu.onnx"):
        (installed / name).touch()
    assert find_weights(Settings()) == installed / "smart-turn-v3.2-cpu.onnx"
    assert EngineAvailability("smart_turn", True, "") in available("endpoint")
    assert "pipecat" not in sys.modules


# With the real weights


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns pipecat's package, unpacked: its weights and its own features."""
    folder = tmp_path_factory.mktemp("wheel")
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", WHEEL]
    done = subprocess.run([*download, "-d", folder], capture_output=True, check=False)
    wheels = list(folder.glob("*.whl"))
    require(done.returncode == 0 and wheels, f"needs the wheel of {WHEEL}")
    with ZipFile(wheels[0]) as file:
        file.extractall(folder, [name for name in file.namelist() if name.startswith(DATA)])
    return folder / DATA


@pytest.fixture(scope="module")
def engine(wheel: Path) -> EndOfTurnDetector:
    return load("endpoint", "smart_turn", {"path": str(wheel / "data/smart-turn-v3.2-cpu.onnx")})


def their_features(wheel: Path) -> Callable[[npt.NDArray[np.float32]], npt.NDArray[np.float32]]:
    spec = spec_from_file_location("their_features", wheel / "_whisper_features.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., npt.NDArray[np.float32]] = module.compute_whisper_log_mel_features
    return found


@pytest.mark.real
@pytest.mark.parametrize("seconds", [1, 7.9, 8, 12])
def test_the_features_equal_those_of_pipecat(
    engine: EndOfTurnDetector, wheel: Path, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    pcm = np.random.default_rng(6).normal(300, 2000, round(seconds * ASR_RATE_HZ)).astype(np.int16)
    window: list[npt.NDArray[np.float32]] = []

    def spy(samples: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        window.append(log_mel(samples))
        return window[-1]

    monkeypatch.setattr(smart_turn, "log_mel", spy)
    assert engine.probability(pcm) is not None
    last = pcm[-8 * ASR_RATE_HZ :].astype(np.float32) / 32768
    padded = np.zeros(8 * ASR_RATE_HZ, np.float32)
    padded[-len(last) :] = last
    theirs = their_features(wheel)(padded)
    assert np.abs(np.subtract(window[0], theirs)).max() < 1e-5


@pytest.mark.real
def test_too_little_audio_gives_no_probability(engine: EndOfTurnDetector) -> None:
    assert engine.probability(np.zeros(0, np.int16)) is None
    assert engine.probability(silence(50, ASR_RATE_HZ)) is None


def sentences() -> Iterator[Path]:
    """Yields recordings that end with a sentence."""
    with shared_data("speech", "transcripts.tsv").open(encoding="utf-8") as file:
        for row in csv.reader(file, delimiter="\t"):
            name, language, text = row[:3]
            is_other = name.startswith(("alphanumeric", "long"))
            is_part = "LJ0" in name and not text.endswith(".")
            if language in ("en", "de", "fr", "es") and not is_other and not is_part:
                yield shared_data("speech", name)


def probabilities_at_pauses(engine: EndOfTurnDetector, pcm: Pcm) -> list[float]:
    """Returns the probability at each candidate of an utterance; the last one is its end."""
    detector = SpeechDetector(load("vad", "gated", {}).open())
    detector.configure(TurnDetection(silence_ms=900))
    audio = np.concatenate([silence(500, ASR_RATE_HZ), pcm, silence(1000, ASR_RATE_HZ)])
    utterance, values = list[Pcm](), list[float]()
    for window in detector.push(AudioFrame(audio, ASR_RATE_HZ, 0)):
        utterance = [*utterance, window.pcm] if window.in_speech else []
        if window.edge and window.edge.kind is EdgeKind.CANDIDATE:
            probability = engine.probability(np.concatenate(utterance))
            assert probability is not None
            values.append(probability)
    return values


@pytest.mark.real
def test_ends_of_sentences_get_higher_probabilities_than_pauses_within(
    engine: EndOfTurnDetector,
) -> None:
    values = [probabilities_at_pauses(engine, decode_file(file)) for file in list(sentences())[::2]]
    ends = np.array([one[-1] for one in values if one])
    pauses = np.array([value for one in values for value in one[:-1]])
    separation = float((ends[:, None] > pauses[None, :]).mean())
    print(f"{len(ends)} ends, {len(pauses)} pauses within: AUC {separation:.3f}")
    assert separation > 0.65
    assert np.mean(ends < 0.3) < 0.2
    assert np.mean(pauses < 0.3) > 0.2
