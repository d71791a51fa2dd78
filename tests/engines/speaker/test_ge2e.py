"""The engine `ge2e`: the network as its definition says, recordings of every kind, and checkpoints
that are refused."""

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from core.audio import ASR_RATE_HZ
from core.errors import EngineError
from engines.base.speaker import SpeakerItem, SpeakerResult
from engines.registry import load
from engines.speaker.ge2e import read_info
from engines.speaker.ge2e.checkpoint import convert_checkpoint
from engines.speaker.ge2e.network import WEIGHTS_FILE, Ge2eNetwork, window_starts
from engines.speaker.ge2e.speech import find_speech, mel_spectrogram
from tests.engines.speaker.buzz import buzz
from tests.engines.speaker.random_weights import (
    Floats,
    random_arrays,
    write_checkpoint,
    write_random_model,
)

pytestmark = pytest.mark.many

SECOND = ASR_RATE_HZ

Doubles = npt.NDArray[np.float64]


def _result(model: Path, samples: Floats) -> SpeakerResult:
    pcm = np.clip(samples * 32768, -32768, 32767).astype("<i2").tobytes()
    (result,) = load("speaker", "ge2e", {"model": str(model)}).embed([SpeakerItem(pcm)])
    return result


def _sigmoid(value: Doubles) -> Doubles:
    return 1 / (1 + np.exp(-value))


def _expected(arrays: dict[str, Floats], mels: Floats) -> Doubles:
    """One window through the network, step by step, as Hochreiter and Schmidhuber write it."""
    inputs: Doubles = mels.astype(np.float64)
    for index in range(3):
        state = cell = np.zeros(arrays[f"lstm.weight_hh_l{index}"].shape[1])
        states = []
        for values in inputs:
            gates = arrays[f"lstm.weight_ih_l{index}"] @ values + arrays[f"lstm.bias_ih_l{index}"]
            gates = gates + arrays[f"lstm.weight_hh_l{index}"] @ state
            write, keep, new, show = np.split(gates + arrays[f"lstm.bias_hh_l{index}"], 4)
            cell = _sigmoid(keep) * cell + _sigmoid(write) * np.tanh(new)
            state = _sigmoid(show) * np.tanh(cell)
            states.append(state)
        inputs = np.array(states)
    vector: Doubles = np.maximum(arrays["linear.weight"] @ inputs[-1] + arrays["linear.bias"], 0)
    return np.asarray(vector / np.linalg.norm(vector), np.float64)


def test_the_network_is_an_lstm_whose_windows_are_averaged() -> None:
    arrays, speech = random_arrays(), buzz(2.4)
    starts = window_starts(len(speech))
    assert starts == [0, 77]
    mels = mel_spectrogram(np.pad(speech, (0, SECOND)))
    mean = np.mean([_expected(arrays, mels[start : start + 160]) for start in starts], axis=0)
    expected = mean / np.linalg.norm(mean)
    assert Ge2eNetwork(arrays).embed(speech) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("samples", "starts"),
    [
        (0, [0]),
        (SECOND // 10, [0]),
        (25_600, [0]),  # one whole window
        (25_600 + 77 * 160 - 6401, [0]),  # a second one would be covered to less than 3/4
        (25_600 + 77 * 160 - 6400, [0, 77]),
        (4 * SECOND, [0, 77, 154, 231]),
    ],
)
def test_a_window_is_used_if_three_quarters_of_it_are_sound(
    samples: int, starts: list[int]
) -> None:
    assert window_starts(samples) == starts


def test_a_voice_gives_a_vector_of_length_one_whatever_its_level(tmp_path: Path) -> None:
    model = write_random_model(tmp_path / "m")
    loud, soft = _result(model, buzz(2)), _result(model, buzz(2, level=0.01))
    vectors = [np.frombuffer(result.vector, "<f4") for result in (loud, soft)]
    assert np.linalg.norm(vectors[0]) == pytest.approx(1, abs=1e-5)
    assert loud.quality.level_dbfs - soft.quality.level_dbfs == pytest.approx(20, abs=1)
    assert soft.quality.speech_ms == loud.quality.speech_ms >= 1800


def test_silence_noise_and_a_short_sound_give_no_vector(tmp_path: Path) -> None:
    model = write_random_model(tmp_path / "m")
    nothing = _result(model, np.zeros(SECOND, np.float32))
    assert nothing.vector == b""
    assert nothing.quality.speech_ms == 0
    assert _result(model, np.zeros(0, np.float32)).vector == b""
    assert _result(model, np.zeros(100, np.float32)).vector == b""
    assert _result(model, buzz(0.2)).vector == b""


@pytest.mark.parametrize("snr_db", [5, 15, 30])
def test_the_ratio_of_speech_to_noise_is_estimated(snr_db: int) -> None:
    voice = np.concatenate([np.zeros(SECOND, np.float32), buzz(2), np.zeros(SECOND, np.float32)])
    power = np.mean(np.square(voice[SECOND : 3 * SECOND]))
    noise = np.random.default_rng(1).normal(0, np.sqrt(power / 10 ** (snr_db / 10)), len(voice))
    quality = find_speech((voice + noise).astype(np.float32)).quality
    assert quality.snr_db == pytest.approx(snr_db, abs=3)


def test_long_silences_are_left_out() -> None:
    pause = np.zeros(3 * SECOND, np.float32)
    speech = find_speech(np.concatenate([buzz(1), pause, buzz(1)]))
    assert 1900 <= len(speech.samples) / SECOND * 1000 <= 2700


def test_a_checkpoint_becomes_arrays_of_the_same_numbers(tmp_path: Path) -> None:
    arrays = random_arrays()
    write_checkpoint(tmp_path / "w.pt", arrays | {"similarity_weight": np.ones(1, np.float32)})
    convert_checkpoint(tmp_path / "w.pt", tmp_path)
    with np.load(tmp_path / WEIGHTS_FILE) as written:
        assert set(written.files) == set(arrays)
        assert all(np.array_equal(written[name], array) for name, array in arrays.items())
    assert read_info(tmp_path).dimensions == 8


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"rebuild": "os.system"}, r"names os\.system, which no table of tensors has"),
        ({"rebuild": "builtins.eval"}, r"names builtins\.eval"),
        ({"storage": "torch.DoubleStorage"}, r"names torch\.DoubleStorage"),
        ({"storage": "collections.OrderedDict"}, "no storage of float32"),
        ({"state": "other"}, "has no table model_state"),
    ],
)
def test_a_pickle_that_names_anything_else_is_refused_and_nothing_runs(
    tmp_path: Path, changed: dict[str, str], message: str
) -> None:
    write_checkpoint(tmp_path / "w.pt", random_arrays(), **changed)
    with pytest.raises(EngineError, match=message):
        convert_checkpoint(tmp_path / "w.pt", tmp_path)
    assert not (tmp_path / WEIGHTS_FILE).exists()


def test_a_truncated_checkpoint_is_refused_at_every_length(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "w.pt", random_arrays(hidden=2, layers=1))
    data = (tmp_path / "w.pt").read_bytes()
    for length in range(0, len(data), 97):
        (tmp_path / "cut.pt").write_bytes(data[:length])
        with pytest.raises(EngineError, match=r"cut\.pt is no checkpoint of GE2E"):
            convert_checkpoint(tmp_path / "cut.pt", tmp_path)


def test_a_checkpoint_with_a_missing_or_wrong_tensor_is_refused(tmp_path: Path) -> None:
    arrays = random_arrays()
    missing = {name: array for name, array in arrays.items() if name != "lstm.bias_hh_l1"}
    write_checkpoint(tmp_path / "w.pt", missing)
    with pytest.raises(EngineError, match=r"has no array lstm\.bias_hh_l1"):
        convert_checkpoint(tmp_path / "w.pt", tmp_path)
    write_checkpoint(tmp_path / "w.pt", arrays | {"linear.weight": np.ones((8, 3), np.float32)})
    with pytest.raises(EngineError, match=r"the linear layer has the shape \(3, 8\)"):
        convert_checkpoint(tmp_path / "w.pt", tmp_path)


def test_a_missing_or_damaged_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=rf"{WEIGHTS_FILE} cannot be read"):
        load("speaker", "ge2e", {"model": str(tmp_path)})
    (tmp_path / WEIGHTS_FILE).write_bytes(b"PK\x03\x04 no archive")
    with pytest.raises(EngineError, match=rf"{WEIGHTS_FILE} cannot be read"):
        read_info(tmp_path)
