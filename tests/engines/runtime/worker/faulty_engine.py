"""ASR engine for tests: on demand it prints, fails and returns too few results."""

import os
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from core.errors import EngineMissing
from engines.base import AsrInfo, AsrItem, AsrResult


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    fails_to_load: bool = False
    dies_loading: bool = False
    is_refused: str = ""
    "A file; if it exists, the process ends as a library in C++ ends it that is refused a model."
    weights: str = ""
    "A file without which the model does not load."


class OddModel:
    """A model whose text is the prompt, or the number of samples and the forgotten utterances."""

    def __init__(self) -> None:
        self.info = AsrInfo("odd", "odd-1", ("en",), 4, is_incremental=False)
        self._forgotten: list[str] = []

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        print("a library says hello")
        prompts = [item.options.prompt for item in items]
        if "fail" in prompts:
            raise ZeroDivisionError("the library is confused")
        if "miscount" in prompts:
            return []
        texts = [item.options.prompt or f"{len(item.pcm)} {self._forgotten}" for item in items]
        return [AsrResult(text, 1.0, "en") for text in texts]

    def forget(self, utterance: str) -> None:
        self._forgotten.append(utterance)

    def close(self) -> None:
        print("closed")


def create(settings: Settings) -> OddModel:
    if settings.fails_to_load:
        raise OSError("the disk is confused")
    if settings.dies_loading:
        os._exit(3)
    if settings.is_refused and Path(settings.is_refused).is_file():
        os._exit(255)
    if settings.weights and not Path(settings.weights).is_file():
        raise EngineMissing("asr", "odd", f"no weights in {settings.weights}")
    return OddModel()
