"""Chooses the files to download for a model for embeddings or reranking, or for a CLIP. The files
are those that `engines/runtime/text_encoder` and `image_text` read; a repository often has the same
weights in several forms."""

import re
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

import msgspec
from msgspec import Struct

from engines.runtime.image_text.folder import (
    IMAGE_FILES,
    JOINT_PROCESSOR_FILE,
    PROCESSOR_FILE,
    TEXT_FILES,
)
from engines.runtime.model_files.checkpoint_graph import CHECKPOINT_FILE
from engines.runtime.text_encoder.folder import (
    CHECKPOINT_TYPES,
    CLIP_TYPES,
    ONNX_FILES,
    SCORING_CLASS,
    TOKENIZER_FILE,
    TextModelKind,
)
from server.models.errors import ModelsError
from server.models.hub import Hub, HubFile

CONFIG_FILE, MODULES_FILE = "config.json", "modules.json"

DESCRIPTION_FILES = (
    *(CONFIG_FILE, MODULES_FILE, TOKENIZER_FILE, "config_sentence_transformers.json"),
    *("sentence_bert_config.json", "special_tokens_map.json", "tokenizer_config.json"),
    *(PROCESSOR_FILE, JOINT_PROCESSOR_FILE),
)
"Files that describe a model; not every model has all of them."

MODULE_CONFIG = re.compile(r"\d+_[A-Za-z]+/config\.json")
"Path of a module's own file, such as `1_Pooling/config.json`."


class _HubConfig(Struct):
    """Part of config.json."""

    model_type: str = ""
    architectures: list[str] = []


@dataclass(frozen=True, slots=True)
class TextModelFiles:
    """Files of a model for embeddings or reranking, or of a CLIP."""

    kind: TextModelKind
    files: tuple[HubFile, ...]


def text_model_files(hub: Hub, files: Sequence[HubFile]) -> TextModelFiles | None:
    """Returns the files to download; None if the repository has no such model. `files`: all files
    of the repository. Reads config.json from the hub.

    Raises ModelsError if it has such a model, but not all of its files.
    """
    by_path = {file.path: file for file in files}
    if MODULES_FILE not in by_path and TOKENIZER_FILE not in by_path:
        return None
    if CONFIG_FILE not in by_path:
        return None
    config = _read_config(hub, by_path[CONFIG_FILE])
    is_scorer = any(name.endswith(SCORING_CLASS) for name in config.architectures)
    is_clip = config.model_type in CLIP_TYPES and MODULES_FILE not in by_path
    if MODULES_FILE not in by_path and not is_scorer and not is_clip:
        return None
    if TOKENIZER_FILE not in by_path:
        raise ModelsError(f"{files[0].repository} has no {TOKENIZER_FILE}")
    paths = [path for path in by_path if path in DESCRIPTION_FILES or MODULE_CONFIG.fullmatch(path)]
    origin = files[0].repository
    paths += _towers(by_path, origin) if is_clip else _weights(config, by_path, origin)
    kind: TextModelKind = "clip" if is_clip else "embed" if MODULES_FILE in by_path else "rerank"
    return TextModelFiles(
        kind,
        tuple(replace(by_path[path], keeps_folders=True) for path in paths),
    )


def _read_config(hub: Hub, file: HubFile) -> _HubConfig:
    try:
        return msgspec.json.decode(hub.read(file), type=_HubConfig)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelsError(f"{file.repository}: {CONFIG_FILE}: {error}") from error


def _weights(config: _HubConfig, paths: Container[str], origin: str) -> list[str]:
    """Returns the paths of the weights: the checkpoint if it can be loaded as it is, otherwise an
    exported network. Raises ModelsError if there is neither."""
    if CHECKPOINT_FILE in paths and config.model_type in CHECKPOINT_TYPES:
        return [CHECKPOINT_FILE]
    for path in ONNX_FILES:
        if path in paths:
            return [file for file in (path, f"{path}_data") if file in paths]
    types = ", ".join(CHECKPOINT_TYPES)
    raise ModelsError(
        f"{origin} has neither {CHECKPOINT_FILE} of a supported type ({types}; it is"
        f" {config.model_type or 'unknown'}) nor {ONNX_FILES[0]}"
    )


def _towers(paths: Container[str], origin: str) -> list[str]:
    """Returns the paths of both towers of a CLIP: its networks for texts and for images. Raises
    ModelsError if there are none."""
    if CHECKPOINT_FILE in paths:
        return [CHECKPOINT_FILE]
    for towers in zip(TEXT_FILES, IMAGE_FILES, strict=True):
        if all(path in paths for path in towers):
            files = (name for path in towers for name in (path, f"{path}_data"))
            return [name for name in files if name in paths]
    raise ModelsError(
        f"{origin} has neither {CHECKPOINT_FILE} nor both of {TEXT_FILES[1]} and {IMAGE_FILES[1]}"
    )
