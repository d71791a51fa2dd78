"""A third party's ASR engine for tests: it prints, fails and miscounts on demand."""

from collections.abc import Sequence

from msgspec import Struct

from engines.base import AsrInfo, AsrItem, AsrResult


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    fails_to_load: bool = False


class OddModel:
    """Its text is what the prompt says, or the number of samples and of forgotten utterances."""

    def __init__(self) -> None:
        self.info = AsrInfo("odd", "odd-1", ("en",), 4, is_incremental=False)
        self._forgotten: list[str] = []

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        print("a library says hello")
        prompts = [item.prompt for item in items]
        if "fail" in prompts:
            raise ZeroDivisionError("the library is confused")
        if "miscount" in prompts:
            return []
        texts = [item.prompt or f"{len(item.pcm)} {self._forgotten}" for item in items]
        return [AsrResult(text, 1.0, "en") for text in texts]

    def forget(self, utterance: str) -> None:
        self._forgotten.append(utterance)

    def close(self) -> None:
        print("closed")


def create(settings: Settings) -> OddModel:
    if settings.fails_to_load:
        raise OSError("the disk is confused")
    return OddModel()
