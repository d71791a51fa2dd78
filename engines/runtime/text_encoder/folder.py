"""Reads the description of a text model from its folder: its kind, pooling, prefixes and limits.
The files are those of sentence-transformers. No weights are read."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from core.errors import EngineError
from engines.base.text import TextModelInfo
from engines.runtime.model_files.checkpoint_graph import CHECKPOINT_FILE

TextModelKind = Literal["embed", "rerank", "clip"]
"""Kind of a model that reads texts. A model of the kind clip also makes vectors of images, see
`engines.runtime.image_text`."""

CLIP_TYPES = ("clip", "siglip")
"Values of `model_type` in config.json for models of the kind clip."

Pooling = Literal["mean", "cls", "last"]
"How the vectors of the tokens become one: their mean, the first one, or the last one."

MAX_BATCH = 16
"""Largest number of items in one call. On a processor a larger batch is not faster, and delays the
requests that arrive during the call."""

ONNX_FILES = ("model.onnx", "onnx/model.onnx")
"Places of an exported network, the preferred first."

TOKENIZER_FILE = "tokenizer.json"

CHECKPOINT_TYPES = ("bert", "roberta", "xlm-roberta")
"Values of `model_type` in config.json for which a network can be built from a checkpoint."

SCORING_CLASS = "ForSequenceClassification"
"End of the class name of a cross-encoder."


class _KindConfig(Struct):
    """Part of config.json that gives the kind of the model."""

    model_type: str = ""
    architectures: list[str] = []


class _Config(_KindConfig):
    """Part of config.json."""

    vocab_size: int = 0
    hidden_size: int = 0
    num_attention_heads: int = 0
    num_hidden_layers: int = 0
    hidden_act: str = "gelu"
    layer_norm_eps: float = 1e-12
    max_position_embeddings: int = 512
    pad_token_id: int | None = 0
    is_matryoshka: bool = False
    matryoshka_dimensions: list[int] = []
    id2label: dict[str, str] = {}
    sentence_transformers: dict[str, Any] = {}
    sbert_ce_default_activation_function: str | None = None


class _Module(Struct):
    """One entry of modules.json."""

    type: str
    path: str = ""


class _PoolingConfig(Struct):
    """Part of the pooling's config.json."""

    pooling_mode_cls_token: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_lasttoken: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False
    pooling_mode_weightedmean_tokens: bool = False
    include_prompt: bool = True
    pooling_mode: str = ""
    "Newer versions of sentence-transformers write this instead of the flags."


class _PromptConfig(Struct):
    """Part of config_sentence_transformers.json."""

    prompts: dict[str, str] = {}
    default_prompt_name: str | None = None


class _LengthConfig(Struct):
    """Part of sentence_bert_config.json."""

    max_seq_length: int | None = None
    do_lower_case: bool = False


@dataclass(frozen=True, slots=True)
class TextModelFolder:
    """A model for embeddings or reranking, as its files describe it."""

    path: Path
    kind: TextModelKind
    config: _Config = field(repr=False)
    info: TextModelInfo
    pooling: Pooling = "mean"
    is_normalized: bool = False
    "True: the model's own pipeline ends with a normalisation."
    prompts: dict[str, str] = field(default_factory=dict)
    "Prefix by name."
    default_prompt: str = ""
    "Name of the prefix that is used if none is named; empty: none."
    lowercases: bool = False
    "True: texts are made lower case before the tokenizer gets them."
    has_sigmoid: bool = False
    "True: scores are mapped to 0 to 1."

    @property
    def onnx_file(self) -> Path | None:
        """The exported network; None if there is only a checkpoint."""
        return next((self.path / name for name in ONNX_FILES if (self.path / name).is_file()), None)

    @property
    def weights_file(self) -> Path:
        """The exported network, or else the checkpoint."""
        return self.onnx_file or self.path / CHECKPOINT_FILE

    @property
    def size_bytes(self) -> int:
        """Size of the weights."""
        file = self.weights_file
        data = file.with_name(file.name + "_data")  # weights of an exported network above 2 GB
        return file.stat().st_size + (data.stat().st_size if data.is_file() else 0)


def read_model_kind(path: Path) -> TextModelKind | None:
    """Returns the kind of the model in a folder; None if it is not a text model. Reads at most one
    small file."""
    if (path / "modules.json").is_file():
        return "embed"
    if not (path / TOKENIZER_FILE).is_file():
        return None
    try:
        config = read_json(path / "config.json", _KindConfig)
    except EngineError:
        return None
    if config.model_type in CLIP_TYPES:
        return "clip"
    is_scorer = any(name.endswith(SCORING_CLASS) for name in config.architectures)
    return "rerank" if is_scorer else None


def read_folder(path: Path) -> TextModelFolder:
    """Reads the files that describe a model. Raises EngineError, which names the file, if one is
    missing or says something that is not supported."""
    kind = read_model_kind(path)
    if kind is None:
        raise _error(path, "is not a model for embeddings or reranking: it has no modules.json")
    for name in ("config.json", TOKENIZER_FILE):
        if not (path / name).is_file():
            raise _error(path, f"has no {name}")
    config = read_json(path / "config.json", _Config)
    _check_numbers(path, config)
    _check_weights(path, config)
    return _read_reranker(path, config) if kind == "rerank" else _read_embedder(path, config)


def _read_embedder(path: Path, config: _Config) -> TextModelFolder:
    pooling: Pooling = "mean"
    is_normalized = False
    for module in read_json(path / "modules.json", list[_Module]):
        match module.type.rpartition(".")[2]:
            case "Transformer":
                if module.path:
                    raise _error(
                        path, f"modules.json: weights in {module.path!r} are not supported"
                    )
            case "Pooling":
                pooling = _pooling(path, module.path)
            case "Normalize":
                is_normalized = True
            case other:
                raise _error(path, f"modules.json: the module {other} is not supported")
    prompts = _read_optional(path / "config_sentence_transformers.json", _PromptConfig)
    length = _read_optional(path / "sentence_bert_config.json", _LengthConfig)
    default_prompt = prompts.default_prompt_name or ""
    if default_prompt and default_prompt not in prompts.prompts:
        why = f"config_sentence_transformers.json: no prompt has the name {default_prompt!r}"
        raise _error(path, why)
    info = TextModelInfo(
        name="onnx",
        model=path.name,
        max_batch=MAX_BATCH,
        max_tokens=min(length.max_seq_length or _positions(config), _positions(config)),
        vocabulary_size=config.vocab_size,
        dimensions=config.hidden_size,
        shorter_dimensions=tuple(sorted(config.matryoshka_dimensions)),
        is_matryoshka=config.is_matryoshka,
        is_normalized=is_normalized,
        prompts=tuple(prompts.prompts),
    )
    return TextModelFolder(
        path,
        "embed",
        config,
        info,
        pooling=pooling,
        is_normalized=is_normalized,
        prompts=prompts.prompts,
        default_prompt=default_prompt,
        lowercases=length.do_lower_case,
    )


def _read_reranker(path: Path, config: _Config) -> TextModelFolder:
    # transformers writes the labels only if there are not two.
    labels = len(config.id2label) or 2
    if labels != 1:
        raise _error(path, f"config.json: it has {labels} labels; reranking needs a model with one")
    activation = (
        config.sentence_transformers.get("activation_fn")
        or config.sbert_ce_default_activation_function
        or "Sigmoid"
    )
    name = str(activation).rpartition(".")[2]
    if name not in {"Sigmoid", "Identity"}:
        raise _error(path, f"config.json: the activation {name} is not supported")
    info = TextModelInfo(
        name="onnx",
        model=path.name,
        max_batch=MAX_BATCH,
        max_tokens=_positions(config),
        vocabulary_size=config.vocab_size,
        dimensions=1,
    )
    return TextModelFolder(path, "rerank", config, info, has_sigmoid=name == "Sigmoid")


def position_offset(config: _Config) -> int:
    """Returns the position of the first token. RoBERTa's positions start after the id of the
    padding token."""
    return 0 if config.model_type == "bert" else (config.pad_token_id or 0) + 1


def _positions(config: _Config) -> int:
    """Returns the largest number of tokens for which the weights have positions."""
    is_roberta = "roberta" in config.model_type
    return config.max_position_embeddings - (position_offset(config) if is_roberta else 0)


def _pooling(path: Path, folder: str) -> Pooling:
    config = read_json(path / folder / "config.json", _PoolingConfig)
    chosen: list[Pooling] = []
    if config.pooling_mode_mean_tokens or config.pooling_mode == "mean":
        chosen.append("mean")
    if config.pooling_mode_cls_token or config.pooling_mode == "cls":
        chosen.append("cls")
    if config.pooling_mode_lasttoken or config.pooling_mode == "lasttoken":
        chosen.append("last")
    others = (
        config.pooling_mode_max_tokens,
        config.pooling_mode_mean_sqrt_len_tokens,
        config.pooling_mode_weightedmean_tokens,
    )
    if len(chosen) != 1 or any(others):
        why = f"{folder}/config.json: the pooling must be the mean, the first or the last token"
        raise _error(path, why)
    if not config.include_prompt:
        raise _error(path, f"{folder}/config.json: include_prompt = false is not supported")
    return chosen[0]


def _check_numbers(path: Path, config: _Config) -> None:
    if config.vocab_size < 1 or config.hidden_size < 1 or _positions(config) < 1:
        why = "vocab_size, hidden_size and max_position_embeddings must be positive"
        raise _error(path, f"config.json: {why}")
    if not 0 <= (config.pad_token_id or 0) < config.vocab_size:
        allowed = f"allowed: 0 to {config.vocab_size - 1}"
        raise _error(path, f"config.json: pad_token_id is {config.pad_token_id}; {allowed}")
    for length in config.matryoshka_dimensions:
        if not 1 <= length <= config.hidden_size:
            allowed = f"allowed: 1 to {config.hidden_size}"
            raise _error(path, f"config.json: matryoshka_dimensions has {length}; {allowed}")


def _check_weights(path: Path, config: _Config) -> None:
    if any((path / name).is_file() for name in ONNX_FILES):
        return
    if not (path / CHECKPOINT_FILE).is_file():
        raise _error(path, f"has neither {CHECKPOINT_FILE} nor {ONNX_FILES[0]}")
    if config.model_type not in CHECKPOINT_TYPES:
        allowed = ", ".join(CHECKPOINT_TYPES)
        why = f"config.json: model_type {config.model_type!r} needs an exported {ONNX_FILES[0]};"
        raise _error(path, f"{why} without one it may be {allowed}")
    if config.hidden_act != "gelu":
        raise _error(path, f"config.json: hidden_act {config.hidden_act!r} needs {ONNX_FILES[0]}")
    if not 0 < config.num_attention_heads <= config.hidden_size or not config.num_hidden_layers:
        raise _error(path, "config.json: hidden_size, heads and layers must be positive")


FileT = TypeVar("FileT")


def _read_optional(file: Path, kind: type[FileT]) -> FileT:
    return read_json(file, kind) if file.is_file() else kind()


def read_json(file: Path, kind: type[FileT]) -> FileT:
    """Reads a file of a model's folder. Raises EngineError, which names the file."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, OSError) as error:
        raise _error(file.parent, f"{file.name}: {error}") from error


def _error(path: Path, why: str) -> EngineError:
    return EngineError("text model", path.name, why)
