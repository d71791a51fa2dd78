"""Settings of the engine `transformers`."""

import json
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from core.errors import EngineMissing
from engines.runtime.model_files.gguf_file import UnreadableGgufError
from engines.runtime.model_files.gguf_folder import check_parts, model_files, only_model

NAME = "transformers"
CONFIG_FILE, GGUF_SUFFIX = "config.json", ".gguf"
CONTEXT_TOKENS = 2048
"Size of the context, in tokens, of a model whose files do not give one."


class Settings(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Settings of the engine `transformers`."""

    path: Annotated[str, Meta(min_length=1)]
    """A folder with config.json, weights and a tokenizer that has a chat template; or a GGUF file,
    its folder, or the name of a GGUF model in the models folder (the server looks it up)."""
    device: Annotated[str, Meta(pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")] = "auto"
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    "Number type; auto: as in the weights on a GPU, float32 on a processor."
    threads: Annotated[int, Meta(ge=0, le=256)] = 0
    "Threads on a processor; 0: torch decides."
    at_once: Annotated[int, Meta(ge=1, le=32)] = 4
    "Answers at the same time, which take turns token by token. A further one is refused as busy."
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    "Sampling temperature; None: as the model's generation_config.json says."
    max_output_tokens: Annotated[int, Meta(ge=1)] = 512
    "Longest answer, including thoughts."
    context_tokens: Annotated[int, Meta(ge=64)] | None = None
    "Size of the context; None: the model's maximum. A smaller one takes less memory."
    thinking: bool = False
    "True: the model may think before it answers, which takes seconds if it can."
    starts_thinking: bool = False
    "True: the chat template itself opens the thought; text before `</think>` is not spoken."
    languages: tuple[str, ...] = ()
    "ISO 639-1 codes of the languages that the model understands; (): any."
    load_timeout_s: Annotated[float, Meta(gt=0)] = 600.0
    first_token_timeout_s: Annotated[float, Meta(gt=0)] = 60.0
    token_timeout_s: Annotated[float, Meta(gt=0)] = 20.0
    "Longest wait between two tokens. A slower process counts as hung and is restarted."

    @property
    def folder(self) -> Path:
        """Folder of the model."""
        path = Path(self.path).expanduser()
        return path.parent if path.suffix == GGUF_SUFFIX else path

    def gguf_file(self) -> Path | None:
        """Returns the GGUF file; None for a folder with config.json. Raises EngineMissing for a
        folder with several GGUF files."""
        path = Path(self.path).expanduser()
        if path.suffix == GGUF_SUFFIX:
            return path
        if (path / CONFIG_FILE).exists() or not model_files(path):
            return None
        try:
            return only_model(path)
        except UnreadableGgufError as exc:
            raise EngineMissing("llm", NAME, str(exc)) from exc


def read_context(settings: Settings) -> int:
    """Returns the size of the context in tokens: the model's, or a smaller one in the settings.

    Raises EngineMissing if config.json or the GGUF file is missing or broken.
    """
    if (gguf_file := settings.gguf_file()) is not None:
        model_limit = _gguf_context(gguf_file)
        return min(model_limit, settings.context_tokens or model_limit)
    file = settings.folder / CONFIG_FILE
    try:
        config: object = json.loads(file.read_text(encoding="utf-8"))
    except OSError as exc:
        raise EngineMissing("llm", NAME, f"no model in {file.parent}: {exc.strerror}") from exc
    except ValueError as exc:
        raise EngineMissing("llm", NAME, f"{file} is not JSON") from exc
    # Models that also understand images keep the language model's values in `text_config`.
    tables = [config, config.get("text_config")] if isinstance(config, dict) else []
    sizes = [table.get("max_position_embeddings") for table in tables if isinstance(table, dict)]
    model_limit = next((n for n in sizes if isinstance(n, int) and n > 0), CONTEXT_TOKENS)
    return min(model_limit, settings.context_tokens or model_limit)


def _gguf_context(file: Path) -> int:
    try:
        header = check_parts(file)
    except UnreadableGgufError as exc:
        raise EngineMissing("llm", NAME, str(exc)) from exc
    if header.is_projector:
        raise EngineMissing("llm", NAME, f"{file} is a vision projector, and writes no text")
    return header.context_tokens or CONTEXT_TOKENS
