"""Voices with the inputs and outputs of Piper's and Kokoro's, and random weights: they speak noise.

Each phoneme is FRAMES frames of its own noise. The second output is this count, as in voices that
give times.
"""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

FRAMES = 4
HOP = 256
PIPER_RATE_HZ = 22_050

_SYMBOLS = [
    *"_^$ ", *map(chr, range(0x21, 0x7F)), *map(chr, range(0xE0, 0x100)),
    *map(chr, range(0x250, 0x370)), *map(chr, range(0x3B0, 0x3D0)), "ŋ", "œ", "ʲ", "̃",
]  # fmt: skip


def have_piper() -> bool:
    return all(find_spec(name) is not None for name in ("piper", "onnx"))


def have_kokoro() -> bool:
    return all(find_spec(name) is not None for name in ("kokoro_onnx", "onnx"))


def piper_voice(
    folder: Path,
    name: str = "en_US-tiny-low",
    *,
    rate_hz: int = PIPER_RATE_HZ,
    speakers: tuple[str, ...] = (),
    with_times: bool = True,
    work: int = 0,
) -> Path:
    """Writes the `.onnx` file and its description; returns the file. `work`: steps of 2.1 million
    operations that each phoneme costs in addition, at normal speed; some 100 make a voice as slow
    as a real one."""
    path = folder / f"{name}.onnx"
    symbols = list(dict.fromkeys(_SYMBOLS))
    extra = ["sid"] if len(speakers) > 1 else []
    _write(path, len(symbols), ("input", "input_lengths", "scales", *extra), with_times, work)
    description = {
        "audio": {"sample_rate": rate_hz},
        "espeak": {"voice": "en-us" if name.startswith("en") else name[:2]},
        "language": {"code": name.partition("-")[0], "family": name[:2]},
        "num_symbols": len(symbols),
        "num_speakers": max(len(speakers), 1),
        "speaker_id_map": {speaker: number for number, speaker in enumerate(speakers)},
        "phoneme_id_map": {symbol: [number] for number, symbol in enumerate(symbols)},
        "inference": {"noise_scale": 0.0, "length_scale": 1.0, "noise_w": 0.0},
        "hop_length": HOP,
    }
    Path(f"{path}.json").write_text(json.dumps(description), encoding="utf-8")
    return path


def kokoro_files(folder: Path, *, with_times: bool = True) -> tuple[Path, Path]:
    """Writes the model and the voices; returns both files."""
    model, voices = folder / "kokoro.onnx", folder / "voices.bin"
    _write(model, 200, ("tokens", "style", "speed"), with_times)
    styles = np.zeros((510, 1, 256), np.float32)
    with voices.open("wb") as file:
        np.savez(file, af_heart=styles, bf_emma=styles, ff_siwis=styles, zf_xiaobei=styles)
    return model, voices


def _write(
    path: Path, symbols: int, inputs: tuple[str, ...], with_times: bool, work: int = 0
) -> None:
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    is_piper = "scales" in inputs
    shapes: dict[str, list[int | None]] = {
        "input": [1, None],
        "tokens": [1, None],
        "style": [1, 256],
        "scales": [3],
    }
    floats = {"scales", "style", "speed"}
    values = [
        helper.make_tensor_value_info(
            name, TensorProto.FLOAT if name in floats else TensorProto.INT64, shapes.get(name, [1])
        )
        for name in inputs
    ]
    outputs = [helper.make_tensor_value_info("audio", TensorProto.FLOAT, None)]
    if with_times:
        kind = TensorProto.FLOAT if is_piper else TensorProto.INT64
        outputs.append(helper.make_tensor_value_info("duration", kind, None))
    sound = np.random.default_rng(1).uniform(-1, 1, (symbols, HOP)).astype(np.float32)
    constants: dict[str, np.ndarray[Any, np.dtype[Any]]] = {
        "weights": sound,
        "frames": np.array([FRAMES], np.float32),
        "ones": np.array([1, 1], np.int64),
        "at": np.array([1 if is_piper else 0], np.int64),
        "flat": np.array([1, 1, -1] if is_piper else [-1], np.int64),
    }
    if work:
        size = FRAMES * HOP
        constants["busy"] = np.eye(size, dtype=np.float32)
    known = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    nodes = _nodes(ids=inputs[0], factor=inputs[2], is_piper=is_piper, work=work)
    graph = helper.make_graph(nodes, "tiny", values, outputs, known)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, str(path))


def _nodes(*, ids: str, factor: str, is_piper: bool, work: int) -> list[Any]:
    """Returns the nodes. `factor` sets how long (Piper) or how fast (Kokoro) each phoneme is."""
    from onnx import TensorProto, helper

    kind = TensorProto.FLOAT if is_piper else TensorProto.INT64
    return [
        helper.make_node("Gather", [factor, "at"], ["chosen"]),
        helper.make_node("Mul" if is_piper else "Div", ["frames", "chosen"], ["length"]),
        helper.make_node("Ceil", ["length"], ["ceiled"]),
        helper.make_node("Cast", ["ceiled"], ["count"], to=TensorProto.INT64),
        helper.make_node("Concat", ["ones", "count"], ["repeats"], axis=0),
        helper.make_node("Gather", ["weights", ids], ["frame"]),
        helper.make_node("Tile", ["frame", "repeats"], ["tiled"]),
        *(
            helper.make_node("MatMul", [f"busy{n - 1}" if n else "tiled", "busy"], [f"busy{n}"])
            for n in range(work)
        ),
        helper.make_node("Reshape", [f"busy{work - 1}" if work else "tiled", "flat"], ["audio"]),
        helper.make_node("Shape", [ids], ["shape"]),
        helper.make_node("Expand", ["count", "shape"], ["counts"]),
        helper.make_node("Cast", ["counts"], ["duration"], to=kind),
    ]
