"""Models of a few kB that sherpa-onnx loads, and that turn a voice into the mean of its spectrum.

Nothing is trained. Two buzzes of one pitch give nearly the same vector, those of different pitches
other ones.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.engines.asr.sherpa.tone_models import network_of, save_model, value_of

BANDS = 80
"Bands of the spectrum, and length of a vector."

GENERAL: Mapping[str, str] = {
    "framework": "3d-speaker",
    "output_dim": str(BANDS),
    "sample_rate": "16000",
    "normalize_samples": "1",
    "language": "English",
}
NEMO: Mapping[str, str] = {
    "framework": "nemo",
    "output_dim": str(BANDS),
    "feat_dim": str(BANDS),
    "sample_rate": "16000",
    "window_size_ms": "25",
    "window_stride_ms": "10",
    "language": "English",
    "feature_normalize_type": "",
    "window_type": "hann",
}


def write_voice_model(folder: Path, without: str = "", *, bands: int = BANDS, **notes: str) -> Path:
    """A model of the kind of CAM++, ERes2Net and WeSpeaker's. `without`: a note that is left out;
    `bands`: of the spectrum that it takes; the library gives 80. `notes`: in place of its own."""
    from onnx import TensorProto as Type

    nodes = _mean_less_level("x", time_axis=1)
    sound = value_of("x", Type.FLOAT, "N", "T", bands)
    vector = value_of("embedding", Type.FLOAT, "N", BANDS)
    model = network_of(nodes, [sound], [vector], {"centre": _CENTRE[:bands]})
    _save(folder, model, {**GENERAL, **notes}, without)
    return folder


def write_nemo_voice_model(folder: Path, without: str = "", **notes: str) -> Path:
    """A model of the kind of TitaNet: time is its last axis, and the vector its second output."""
    from onnx import TensorProto as Type
    from onnx import helper

    nodes = _mean_less_level("audio_signal", time_axis=2)
    nodes.append(helper.make_node("Cast", ["length"], ["logits"], to=Type.FLOAT))
    inputs = [
        value_of("audio_signal", Type.FLOAT, "N", BANDS, "T"),
        value_of("length", Type.INT64, "N"),
    ]
    outputs = [
        value_of("logits", Type.FLOAT, "N"),
        value_of("embedding", Type.FLOAT, "N", BANDS),
    ]
    model = network_of(nodes, inputs, outputs, {"centre": _CENTRE})
    _save(folder, model, {**NEMO, **notes}, without)
    return folder


_CENTRE = (np.eye(BANDS) - np.full((BANDS, BANDS), 1 / BANDS)).astype(np.float32)
"Takes the mean of all bands from each band."


def _mean_less_level(name: str, time_axis: int) -> list[Any]:
    """Returns nodes that make the mean spectrum, less the level of the sound."""
    from onnx import helper

    return [
        helper.make_node("ReduceMean", [name], ["mean"], axes=[time_axis], keepdims=0),
        helper.make_node("MatMul", ["mean", "centre"], ["embedding"]),
    ]


def _save(folder: Path, model: Any, notes: Mapping[str, str], without: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    kept = {key: text for key, text in notes.items() if key != without}
    save_model(folder / "voices.onnx", model, kept)
