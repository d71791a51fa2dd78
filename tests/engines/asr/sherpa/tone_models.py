"""Models of a few kB that sherpa-onnx loads, and that recognise pure tones as words.

Nothing is trained. The score of a word is the energy of the features in the mel band of its tone,
less a threshold, so the text, the times and the order of what the library does can be foretold.

    python -m tests.engines.asr.sherpa.tone_models FOLDER

writes the streaming models and three recordings, for `bench.measurements.streaming_asr`.
"""

import sys
import wave
from collections.abc import Iterable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from core.audio import ASR_RATE_HZ, Pcm

WORDS = ("turn", "on", "the", "light", "off")
GERMAN = ("schalte", "ein", "das", "licht", "aus")
TONES_HZ = (500, 850, 1300, 2000, 3000)
"Tone of each word; both languages have the same tones."

WORD_MS, GAP_MS = 250, 80
STEP_FRAMES, WINDOW_FRAMES = 32, 45
"Frames by which a streaming zipformer advances, and that it sees; 10 ms each."
ZIPFORMER: dict[str, str] = {
    "encoder_dims": "4",
    "query_head_dims": "2",
    "value_head_dims": "2",
    "num_heads": "2",
    "num_encoder_layers": "1",
    "cnn_module_kernels": "3",
    "left_context_len": "4",
    "T": str(WINDOW_FRAMES),
    "decode_chunk_len": str(STEP_FRAMES),
}
"Notes of the smallest zipformer."
NEMO_STEP, NEMO_PAST = 56, 9
"Frames by which a streaming NeMo model advances, and those before them that it sees again."

Floats = npt.NDArray[np.float32]


def have_sherpa() -> bool:
    return find_spec("sherpa_onnx") is not None and find_spec("onnx") is not None


def say(words: str, *, lead_ms: int = 300, tail_ms: int = 0) -> Pcm:
    """Returns the tones of the words, 16 kHz."""
    tones = dict(zip((*WORDS, *GERMAN), (*TONES_HZ, *TONES_HZ), strict=True))
    parts = [_silence(lead_ms)]
    for word in words.split():
        seconds = np.arange(WORD_MS * ASR_RATE_HZ // 1000) / ASR_RATE_HZ
        parts.append((16000 * np.sin(2 * np.pi * tones[word] * seconds)).astype(np.int16))
        parts.append(_silence(GAP_MS))
    return np.concatenate([*parts, _silence(tail_ms)])


def end_ms(count: int, lead_ms: int = 300) -> int:
    """Returns where the word with this number, from 1 on, ends in what `say` returns."""
    return lead_ms + count * WORD_MS + (count - 1) * GAP_MS


def streaming_ctc(folder: Path, **notes: str) -> Path:
    """A streaming zipformer that writes words frame by frame. `notes`: in place of its own."""
    _tokens(folder, ("<blk>", *_pieces(WORDS)))
    network = _zipformer_network("log_probs", has_log=True)
    save_model(
        folder / "model.int8.onnx", network, ZIPFORMER | {"model_type": "zipformer2_ctc"} | notes
    )
    return folder


def streaming_transducer(folder: Path, **notes: str) -> Path:
    """A streaming zipformer whose decoder may not write a word twice in a row."""
    from onnx import TensorProto as Type
    from onnx import helper

    _tokens(folder, ("<blk>", *_pieces(WORDS)))
    network = _zipformer_network("encoder_out", has_log=False)
    kind = {"model_type": "zipformer2"}
    save_model(folder / "encoder-epoch-99-avg-1.onnx", network, ZIPFORMER | kind | notes)
    count = len(WORDS) + 1
    nodes = [
        helper.make_node("Slice", ["y", "one", "two", "one"], ["last"]),
        helper.make_node("Gather", ["table", "last"], ["rows"], axis=0),
        helper.make_node("Squeeze", ["rows", "one"], ["decoder_out"]),
    ]
    values = {"table": _no_repeats(count, first=1), "one": [1], "two": [2]}
    decoder = network_of(
        nodes,
        [value_of("y", Type.INT64, "N", 2)],
        [value_of("decoder_out", Type.FLOAT, "N", count)],
        values,
    )
    save_model(
        folder / "decoder-epoch-99-avg-1.onnx",
        decoder,
        {"vocab_size": str(count), "context_size": "2"},
    )
    joiner = network_of(
        [helper.make_node("Add", ["encoder_out", "decoder_out"], ["logit"])],
        [value_of(name, Type.FLOAT, "N", count) for name in ("encoder_out", "decoder_out")],
        [value_of("logit", Type.FLOAT, "N", count)],
        {},
    )
    save_model(folder / "joiner-epoch-99-avg-1.onnx", joiner, {"joiner_dim": str(count)})
    pieces = "".join(f"{piece}\t{-rank}\n" for rank, piece in enumerate(_pieces(WORDS)))
    (folder / "bpe.vocab").write_text(pieces, encoding="utf-8")
    return folder


def offline_ctc(folder: Path, kind: str = "zipformer2_ctc") -> Path:
    """A model of whole utterances. `kind`: zipformer2_ctc or wenet_ctc."""
    from onnx import TensorProto as Type
    from onnx import helper

    _tokens(folder, ("<blk>", *_pieces(WORDS)))
    # WeNet's features are of samples of up to 32768, so their logarithm is larger.
    weights, bias = _tone_weights(4, 1, 3.0 + (20.79 if kind == "wenet_ctc" else 0.0))
    nodes = [
        *_whole_frames("x", 4),
        helper.make_node("MatMul", ["grouped", "weights"], ["energies"]),
        helper.make_node("Add", ["energies", "bias"], ["scores"]),
        helper.make_node("LogSoftmax", ["scores"], ["log_probs"], axis=-1),
        helper.make_node("Div", ["x_lens", "group"], ["lengths"]),
    ]
    values = {**_whole_frames_values(4), "weights": weights, "bias": bias}
    network = network_of(
        nodes,
        [value_of("x", Type.FLOAT, "N", "T", 80), value_of("x_lens", Type.INT64, "N")],
        [
            value_of("log_probs", Type.FLOAT, "N", "T4", len(bias)),
            value_of("lengths", Type.INT64, "N"),
        ],
        values,
    )
    notes = {"model_type": kind, "vocab_size": str(len(bias)), "subsampling_factor": "4"}
    save_model(folder / "model.onnx", network, notes)
    return folder


def offline_tdt(folder: Path) -> Path:
    """A stand-in for Parakeet: its joiner also says how long a token lasts, always one frame."""
    from onnx import TensorProto as Type
    from onnx import helper

    words = _pieces(WORDS)
    _tokens(folder, (*words, "<blk>"))
    size = len(words) + 1 + 5
    weights, bias = _nemo_weights(words, size)
    bias[len(words) + 2] = 5.0
    nodes = [
        helper.make_node("Transpose", ["audio_signal"], ["x"], perm=[0, 2, 1]),
        *_whole_frames("x", 8),
        helper.make_node("MatMul", ["grouped", "weights"], ["energies"]),
        helper.make_node("Add", ["energies", "bias"], ["scores"]),
        helper.make_node("Transpose", ["scores"], ["outputs"], perm=[0, 2, 1]),
        helper.make_node("Div", ["length", "group"], ["encoded_lengths"]),
    ]
    network = network_of(
        nodes,
        [value_of("audio_signal", Type.FLOAT, "N", 80, "T"), value_of("length", Type.INT64, "N")],
        [
            value_of("outputs", Type.FLOAT, "N", size, "T8"),
            value_of("encoded_lengths", Type.INT64, "N"),
        ],
        {**_whole_frames_values(8), "weights": weights, "bias": bias},
    )
    notes = _nemo_notes(len(words)) | {"url": "tone-tdt", "feat_dim": "80"}
    save_model(folder / "encoder.int8.onnx", network, notes)
    _nemo_predictor(folder, len(words), size)
    return folder


def streaming_nemo(folder: Path) -> Path:
    """A stand-in for Nemotron: a language is chosen for each utterance."""
    from onnx import TensorProto as Type
    from onnx import helper

    words = _pieces((*WORDS, *GERMAN))
    _tokens(folder, (*words, "<blk>"))
    size, window = len(words) + 1, NEMO_STEP + NEMO_PAST
    weights, bias = _nemo_weights(words, size)
    prompts = np.zeros((3, size), np.float32)  # detect, English, German
    prompts[:2, 5:10] = prompts[2, :5] = -1000
    caches = [
        value_of("cache_last_channel", Type.FLOAT, "N", 1, 2, 3),
        value_of("cache_last_time", Type.FLOAT, "N", 1, 3, 2),
        value_of("cache_last_channel_len", Type.INT64, "N"),
    ]
    nodes = [
        helper.make_node("Transpose", ["audio_signal"], ["x"], perm=[0, 2, 1]),
        helper.make_node("Slice", ["x", "past", "window", "axis"], ["new"]),
        helper.make_node("Reshape", ["new", "shape"], ["grouped"]),
        helper.make_node("MatMul", ["grouped", "weights"], ["energies"]),
        helper.make_node("Add", ["energies", "bias"], ["scores"]),
        helper.make_node("Gather", ["prompts", "prompt_index"], ["prompt"], axis=0),
        helper.make_node("Unsqueeze", ["prompt", "axis"], ["prompt_row"]),
        helper.make_node("Add", ["scores", "prompt_row"], ["prompted"]),
        helper.make_node("Transpose", ["prompted"], ["outputs"], perm=[0, 2, 1]),
        helper.make_node("Div", ["length", "group"], ["encoded_lengths"]),
        *(helper.make_node("Identity", [one.name], [f"{one.name}_next"]) for one in caches),
    ]
    values: dict[str, Any] = {"weights": weights, "bias": bias, "prompts": prompts}
    values |= {"past": [NEMO_PAST], "window": [window], "axis": [1], "group": [8]}
    values["shape"] = [0, NEMO_STEP // 8, 640]
    network = network_of(
        nodes,
        [
            value_of("audio_signal", Type.FLOAT, "N", 80, window),
            value_of("length", Type.INT64, "N"),
            *caches,
            value_of("prompt_index", Type.INT64, "N"),
        ],
        [
            value_of("outputs", Type.FLOAT, "N", size, NEMO_STEP // 8),
            value_of("encoded_lengths", Type.INT64, "N"),
            *_renamed(caches, "{}_next"),
        ],
        values,
    )
    notes = {"window_size": str(window), "chunk_shift": str(NEMO_STEP), "auto_prompt_id": "0"}
    notes |= {f"cache_last_channel_dim{number}": str(number) for number in (1, 2, 3)}
    notes |= {f"cache_last_time_dim{number}": str((1, 3, 2)[number - 1]) for number in (1, 2, 3)}
    notes["prompt_dictionary"] = '{"auto": 0, "en-US": 1, "de-DE": 2}'
    save_model(folder / "encoder.int8.onnx", network, _nemo_notes(len(words)) | notes)
    _nemo_predictor(folder, len(words), size)
    return folder


def _silence(ms: int) -> Pcm:
    return np.zeros(ms * ASR_RATE_HZ // 1000, np.int16)


def _pieces(words: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"▁{word}" for word in words)


def punctuation(folder: Path, **notes: str) -> Path:
    """A model for punctuation: a full stop after "light", a comma after "on", nothing else."""
    from onnx import TensorProto as Type
    from onnx import helper

    tokens, marks = ("<unk>", *WORDS), ("<unk>", "_", "，", "。", "？", "、")
    table = np.zeros((len(tokens), len(marks)), np.float32)
    table[:, marks.index("_")] = 1
    table[tokens.index("light"), marks.index("。")] = 2
    table[tokens.index("on"), marks.index("，")] = 2
    network = network_of(
        [helper.make_node("Gather", ["table", "inputs"], ["logits"], axis=0)],
        [value_of("inputs", Type.INT32, "N", "T"), value_of("text_lengths", Type.INT32, "N")],
        [value_of("logits", Type.FLOAT, "N", "T", len(marks))],
        {"table": table},
    )
    own = {"tokens": "|".join(tokens), "vocab_size": str(len(tokens))}
    own |= {"punctuations": "|".join(marks), "unk_symbol": "<unk>"}
    folder.mkdir(parents=True, exist_ok=True)
    save_model(folder / "model.int8.onnx", network, own | notes)
    return folder


def _tokens(folder: Path, tokens: Sequence[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{token} {number}\n" for number, token in enumerate(tokens))
    (folder / "tokens.txt").write_text(lines, encoding="utf-8")


def _mel_band(hz: float) -> int:
    """Returns the band of a tone among the 80 from 20 to 7600 Hz, as Kaldi has them."""

    def mel(value: float) -> float:
        return float(1127 * np.log(1 + value / 700))

    return round((mel(hz) - mel(20)) / ((mel(7600) - mel(20)) / 81) - 1)


def _slaney_band(hz: float) -> int:
    """Returns the band of a tone among the 80 up to 8000 Hz, as librosa has them."""

    def mel(value: float) -> float:
        return (
            value * 3 / 200 if value < 1000 else float(15 + np.log(value / 1000) * 27 / np.log(6.4))
        )

    return round(mel(hz) / mel(8000) * 81) - 1


def _tone_weights(frames: int, first: int, threshold: float) -> tuple[Floats, Floats]:
    """Returns weights from `frames` frames of 80 bands to the scores of blank and words. `first`:
    index of the first word."""
    size = len(WORDS) + 1
    weights = np.zeros((frames, 80, size), np.float32)
    for index, hz in enumerate(TONES_HZ):
        weights[:, _mel_band(hz), first + index] = 1 / frames
    bias = np.zeros(size, np.float32)
    bias[first : first + len(WORDS)] = -threshold
    return weights.reshape(frames * 80, size), bias


def _nemo_weights(words: Sequence[str], size: int) -> tuple[Floats, Floats]:
    weights = np.zeros((8, 80, size), np.float32)
    for index in range(len(words)):
        weights[:, _slaney_band(TONES_HZ[index % len(TONES_HZ)]), index] = 1 / 8
    bias = np.zeros(size, np.float32)
    bias[: len(words)] = 3.0
    return weights.reshape(640, size), bias


def _no_repeats(count: int, first: int = 0) -> Floats:
    """Returns a table by the last token: the same token has no chance."""
    table = np.zeros((count, count), np.float32)
    table[np.arange(first, count), np.arange(first, count)] = -1000
    return table


def _zipformer_network(output: str, *, has_log: bool) -> Any:
    from onnx import TensorProto as Type
    from onnx import helper

    states = [
        value_of("cached_key_0", Type.FLOAT, 4, "N", 4),
        value_of("cached_nonlin_attn_0", Type.FLOAT, 1, "N", 4, 3),
        value_of("cached_val1_0", Type.FLOAT, 4, "N", 4),
        value_of("cached_val2_0", Type.FLOAT, 4, "N", 4),
        value_of("cached_conv1_0", Type.FLOAT, "N", 4, 1),
        value_of("cached_conv2_0", Type.FLOAT, "N", 4, 1),
        value_of("embed_states", Type.FLOAT, "N", 128, 3, 19),
        value_of("processed_lens", Type.INT64, "N"),
    ]
    weights, bias = _tone_weights(4, 1, 3.0)
    last = "LogSoftmax" if has_log else "Identity"
    nodes = [
        helper.make_node("Slice", ["x", "start", "end", "axis"], ["new"]),
        helper.make_node("Reshape", ["new", "shape"], ["grouped"]),
        helper.make_node("MatMul", ["grouped", "weights"], ["energies"]),
        helper.make_node("Add", ["energies", "bias"], ["scores"]),
        helper.make_node(last, ["scores"], [output]),
        *(helper.make_node("Identity", [one.name], [f"new_{one.name}"]) for one in states[:-1]),
        helper.make_node("Add", ["processed_lens", "eight"], ["new_processed_lens"]),
    ]
    values: dict[str, Any] = {"weights": weights, "bias": bias, "eight": [8]}
    values |= {"start": [0], "end": [STEP_FRAMES], "axis": [1], "shape": [0, 8, 320]}
    return network_of(
        nodes,
        [value_of("x", Type.FLOAT, "N", WINDOW_FRAMES, 80), *states],
        [value_of(output, Type.FLOAT, "N", 8, len(bias)), *_renamed(states, "new_{}")],
        values,
    )


def _whole_frames(name: str, group: int) -> list[Any]:
    """Returns nodes that join each `group` frames to one, and drop what is left over."""
    from onnx import helper

    return [
        helper.make_node("Shape", [name], ["sizes"]),
        helper.make_node("Gather", ["sizes", "one"], ["frames"], axis=0),
        helper.make_node("Div", ["frames", "group"], ["groups"]),
        helper.make_node("Mul", ["groups", "group"], ["whole"]),
        helper.make_node("Slice", [name, "zero", "whole", "one"], ["cut"]),
        helper.make_node("Concat", ["zero", "groups", "width"], ["shape"], axis=0),
        helper.make_node("Reshape", ["cut", "shape"], ["grouped"]),
    ]


def _whole_frames_values(group: int) -> dict[str, Any]:
    return {"zero": [0], "one": [1], "group": [group], "width": [80 * group]}


def _nemo_notes(words: int) -> dict[str, str]:
    return {
        "vocab_size": str(words),
        "subsampling_factor": "8",
        "normalize_type": "NA",
        "pred_rnn_layers": "1",
        "pred_hidden": "2",
        "model_type": "EncDecRNNTBPEModel",
    }


def _nemo_predictor(folder: Path, words: int, size: int) -> None:
    """Writes a decoder that hands its state on, and a joiner that adds."""
    from onnx import TensorProto as Type
    from onnx import helper

    table = np.zeros((words + 1, size), np.float32)
    table[:words, :words] = _no_repeats(words)
    states = [value_of(name, Type.FLOAT, 1, "N", 2) for name in ("states.1", "states.2")]
    decoder = network_of(
        [
            helper.make_node("Gather", ["table", "targets"], ["rows"], axis=0),
            helper.make_node("Transpose", ["rows"], ["outputs"], perm=[0, 2, 1]),
            helper.make_node("Identity", ["target_length"], ["lengths"]),
            *(helper.make_node("Identity", [one.name], [f"new_{one.name}"]) for one in states),
        ],
        [
            value_of("targets", Type.INT32, "N", 1),
            value_of("target_length", Type.INT32, "N"),
            *states,
        ],
        [
            value_of("outputs", Type.FLOAT, "N", size, 1),
            value_of("lengths", Type.INT32, "N"),
            *_renamed(states, "new_{}"),
        ],
        {"table": table},
    )
    save_model(folder / "decoder.int8.onnx", decoder, {})
    inputs = [value_of(name, Type.FLOAT, "N", size, 1) for name in ("encoder_outputs", "predicted")]
    joiner = network_of(
        [
            helper.make_node("Add", ["encoder_outputs", "predicted"], ["sum"]),
            helper.make_node("Transpose", ["sum"], ["row"], perm=[0, 2, 1]),
            helper.make_node("Unsqueeze", ["row", "axis"], ["logits"]),
        ],
        inputs,
        [value_of("logits", Type.FLOAT, "N", 1, 1, size)],
        {"axis": [1]},
    )
    save_model(folder / "joiner.int8.onnx", joiner, {})


def value_of(name: str, kind: int, *shape: int | str) -> Any:
    from onnx import helper

    return helper.make_tensor_value_info(name, kind, shape)


def _renamed(values: Iterable[Any], pattern: str) -> list[Any]:
    """Returns copies of inputs as outputs of other names."""
    copies = []
    for value in values:
        copy = type(value)()
        copy.CopyFrom(value)
        copy.name = pattern.format(value.name)
        copies.append(copy)
    return copies


def network_of(
    nodes: Sequence[Any],
    inputs: Sequence[Any],
    outputs: Sequence[Any],
    values: Mapping[str, Any],
) -> Any:
    """`values`: constants by name; lists are whole numbers."""
    from onnx import helper, numpy_helper

    constants = [
        numpy_helper.from_array(
            np.array(value, np.int64) if isinstance(value, list) else value, name
        )
        for name, value in values.items()
    ]
    graph = helper.make_graph(nodes, "tones", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def save_model(path: Path, model: Any, notes: Mapping[str, str]) -> None:
    from onnx import save

    for key, value in notes.items():
        entry = model.metadata_props.add()
        entry.key, entry.value = key, value
    save(model, path)


def write_all(folder: Path) -> None:
    """Writes the streaming models, each in a folder of its own, and recordings."""
    for build in (streaming_ctc, streaming_transducer, streaming_nemo):
        build(folder / build.__name__)
    for text in ("turn on the light", "turn off", "turn off the light"):
        with wave.open(str(folder / f"{text.replace(' ', '-')}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(ASR_RATE_HZ)
            file.writeframes(say(text).astype("<i2").tobytes())


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
