"""Program that converts a Whisper checkpoint for CTranslate2.

Run it as `convert_whisper.py CHECKPOINT OUTPUT QUANTIZATION`. CHECKPOINT is a folder in the format
of transformers (safetensors), or with an OpenAI `.pt` file and the tokenizer of the model that it
was trained from. The program needs torch, transformers and ctranslate2, and none of our modules:
any environment that has the three can run it.

It reports its progress on standard output in lines `progress STAGE DONE TOTAL`, in bytes. TOTAL is
0 for a stage that is not counted.
"""

import json
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterator
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

COPIED_FILES = ("tokenizer.json", "preprocessor_config.json", "earshot.json")
"Files that are copied from the checkpoint to the output where they exist."

NAME_REPLACEMENTS = (
    ("blocks", "layers"),
    (".cross_attn_ln.", ".encoder_attn_layer_norm."),
    (".attn_ln.", ".self_attn_layer_norm."),
    (".cross_attn.query.", ".encoder_attn.q_proj."),
    (".cross_attn.key.", ".encoder_attn.k_proj."),
    (".cross_attn.value.", ".encoder_attn.v_proj."),
    (".cross_attn.out.", ".encoder_attn.out_proj."),
    (".attn.query.", ".self_attn.q_proj."),
    (".attn.key.", ".self_attn.k_proj."),
    (".attn.value.", ".self_attn.v_proj."),
    (".attn.out.", ".self_attn.out_proj."),
    (".mlp_ln.", ".final_layer_norm."),
    (".mlp.0.", ".fc1."),
    (".mlp.2.", ".fc2."),
    ("encoder.ln_post.", "encoder.layer_norm."),
    ("decoder.ln.", "decoder.layer_norm."),
    ("decoder.token_embedding.", "decoder.embed_tokens."),
    (".positional_embedding", ".embed_positions.weight"),
)
"Replacements that turn OpenAI's names of weights into those of transformers, in this order."


TOKEN_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
"Special tokens that the configuration takes from `generation_config.json`."


CHECKPOINT_FILES = ("*.safetensors", "pytorch_model*.bin", "*.pt")
"Patterns of the files with weights; a folder's files have the first pattern that matches any."

READ_BYTES = 8 << 20
"Bytes of a file that are read at once. After each of them progress may be reported."

LOADING_BAR = "Loading weights"
"Title of the progress bar of transformers while it loads a checkpoint."

REPORT_S = 0.1
"Smallest time between two reports of a stage, in seconds."


class Progress:
    """Progress of the conversion, reported stage by stage."""

    def __init__(self) -> None:
        self._stage, self._done, self._total = "", 0, 0
        self._reported_s = 0.0
        self._pending: tuple[str, Callable[[], int]] | None = None
        "Stage that begins with the next step, and what returns its bytes."

    def start(self, stage: str, total: int = 0) -> None:
        """Begins a stage. `total`: its bytes; 0 if it is not counted."""
        self._stage, self._done, self._total = stage, 0, total
        self._report()

    def start_at_first(self, stage: str, total: Callable[[], int]) -> None:
        """Begins a stage with its first step."""
        self._pending = stage, total

    def begin_pending(self) -> None:
        """Begins the stage of `start_at_first`, unless it has begun."""
        if self._pending is not None:
            (stage, total), self._pending = self._pending, None
            self.start(stage, total())

    def add(self, count: int) -> None:
        """Counts finished bytes of the stage."""
        self._done += count
        if time.monotonic() - self._reported_s >= REPORT_S:
            self._report()

    def finish(self) -> None:
        """Reports that the stage is over."""
        self._pending = None
        self._done = self._total
        self._report()

    def _report(self) -> None:
        self._reported_s = time.monotonic()
        sys.stdout.write(f"progress {self._stage} {self._done} {self._total}\n")
        sys.stdout.flush()


def read_weights(checkpoint: Path, progress: Progress) -> int:
    """Reads the files with weights once, and returns their bytes. This is the part that waits for
    the disk: transformers then gets them from memory."""
    found = (list(checkpoint.glob(pattern)) for pattern in CHECKPOINT_FILES)
    files = next(filter(None, found), [])
    total = sum(file.stat().st_size for file in files)
    progress.start("read", total)
    for file in files:
        with file.open("rb", buffering=0) as weights:
            while part := weights.read(READ_BYTES):
                progress.add(len(part))
    progress.finish()
    return total


def count_loading(logging: Any, total: int, progress: Progress) -> None:
    """Counts the weights that transformers loads. `logging`: its module of that name, whose hook
    for progress bars exists since release 5; with an older one nothing is counted. Each weight
    counts as an equal share of `total`, the bytes of the files."""

    def make_bar(factory: Callable[..., Any], args: Any, options: Any) -> Any:
        is_loading = args and options.get("desc") == LOADING_BAR
        return counted(args[0]) if is_loading else factory(*args, **options)

    def counted(weights: Collection[Any]) -> Iterator[Any]:
        progress.start("load", total)
        shares = [total * number // len(weights) for number in range(len(weights) + 1)]
        for weight, (before, after) in zip(weights, pairwise(shares), strict=True):
            yield weight
            progress.add(after - before)
        progress.finish()

    if hasattr(logging, "set_tqdm_hook"):
        logging.set_tqdm_hook(make_bar)


def count_weights(model_spec: Any, progress: Progress) -> None:
    """Counts the weights whose number format CTranslate2 changes, and those that it writes.
    `model_spec`: its module of that name, whose public methods are wrapped: it has no hook."""

    def size_of(spec: Any) -> int:
        """Returns the bytes of all weights; an alias of another weight is only its name."""
        weights = spec.variables().values()
        return sum(weight.num_bytes() for weight in weights if not isinstance(weight, str))

    optimize, save = model_spec.ModelSpec.optimize, model_spec.ModelSpec.save

    def counted_optimize(spec: Any, *args: Any, **options: Any) -> None:
        progress.start("compare")  # finds equal weights, before it changes the first one
        progress.start_at_first("quantize", lambda: size_of(spec))
        optimize(spec, *args, **options)
        progress.finish()

    def counted_save(spec: Any, *args: Any) -> None:
        progress.start("write", size_of(spec))
        save(spec, *args)
        progress.finish()

    def step(method: Callable[..., Any]) -> Callable[..., Any]:
        def counted(weight: Any, *args: Any) -> Any:
            progress.begin_pending()
            size = weight.num_bytes()
            result = method(weight, *args)
            progress.add(size)
            return result

        return counted

    model_spec.ModelSpec.optimize, model_spec.ModelSpec.save = counted_optimize, counted_save
    model_spec.Variable.to = step(model_spec.Variable.to)
    for kind in (model_spec.NumpyVariable, model_spec.PyTorchVariable):
        kind.to_bytes = step(kind.to_bytes)


def convert(checkpoint: Path, output: Path, quantization: str) -> None:
    """Writes the converted model to the folder `output`, which must not exist."""
    # Fail now if one is missing: the converter would fail later, with an unclear message.
    for library in ("torch", "transformers"):
        import_module(library)
    from ctranslate2.converters import TransformersConverter
    from ctranslate2.specs import model_spec
    from transformers.utils import logging as transformers_logging

    progress = Progress()
    count_weights(model_spec, progress)
    total = read_weights(checkpoint, progress)
    progress.start("prepare")  # imports the model's code, for seconds
    count_loading(transformers_logging, total, progress)
    with TemporaryDirectory() as scratch:
        if file := openai_file(checkpoint):
            checkpoint = from_openai(file, Path(scratch))
        copied = [name for name in COPIED_FILES if (checkpoint / name).is_file()]
        converter = TransformersConverter(str(checkpoint), copy_files=copied)
        converter.convert(str(output), quantization=quantization)
        if not (output / "tokenizer.json").exists():  # the checkpoint has the older tokenizer files
            from transformers import AutoTokenizer

            AutoTokenizer.from_pretrained(str(checkpoint)).backend_tokenizer.save(
                str(output / "tokenizer.json")
            )


def openai_file(checkpoint: Path) -> Path | None:
    """Returns the checkpoint's OpenAI file; None if the folder is in the format of transformers.
    Such a folder may also hold `.pt` files in which a training program saved its state."""
    for pattern in ("*.safetensors", "pytorch_model*.bin"):
        if next(checkpoint.glob(pattern), None):
            return None
    return min(checkpoint.glob("*.pt"), default=None)


def from_openai(file: Path, folder: Path) -> Path:
    """Writes the weights of an OpenAI file to `folder` in the format of transformers. Returns
    `folder`."""
    import torch
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    saved = torch.load(file, map_location="cpu", weights_only=True)
    dims, state = saved["dims"], saved["model_state_dict"]
    width = dims["n_audio_state"]
    generation = json.loads((file.parent / "generation_config.json").read_text(encoding="utf-8"))
    model = WhisperForConditionalGeneration(
        WhisperConfig(
            vocab_size=dims["n_vocab"],
            num_mel_bins=dims["n_mels"],
            d_model=width,
            encoder_layers=dims["n_audio_layer"],
            encoder_attention_heads=dims["n_audio_head"],
            encoder_ffn_dim=4 * width,
            decoder_layers=dims["n_text_layer"],
            decoder_attention_heads=dims["n_text_head"],
            decoder_ffn_dim=4 * width,
            max_source_positions=dims["n_audio_ctx"],
            max_target_positions=dims["n_text_ctx"],
            **{name: generation[name] for name in TOKEN_IDS},
        )
    )
    model.model.load_state_dict({transformers_name(name): value for name, value in state.items()})
    model.tie_weights()
    model.save_pretrained(folder)
    for path in file.parent.iterdir():
        if path.suffix in {".json", ".txt"} and path.name not in {"config.json", "source.json"}:
            shutil.copy(path, folder)
    drop_invalid_alignment_heads(folder / "generation_config.json", dims["n_text_layer"])
    return folder


def transformers_name(name: str) -> str:
    """Returns the name that transformers uses for a weight of OpenAI's file."""
    for theirs, ours in NAME_REPLACEMENTS:
        name = name.replace(theirs, ours)
    return name


def drop_invalid_alignment_heads(file: Path, layers: int) -> None:
    """Removes `alignment_heads` from the configuration in `file` if they name a layer that does not
    exist. A distilled decoder has fewer layers than the model whose heads are listed."""
    config: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    if any(layer >= layers for layer, _ in config.get("alignment_heads") or ()):
        del config["alignment_heads"]
        file.write_text(json.dumps(config), encoding="utf-8")


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
