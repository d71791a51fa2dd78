"""Recogniser whose final result takes a fixed time. Partials take almost none."""

import time
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from core.audio import ASR_RATE_HZ, samples_to_ms
from engines.base import AsrInfo, AsrItem, AsrResult, Segment

WORDS = ["turn", "on", "the", "kitchen", "lights"]
"""Words of every final. They fit into the shortest clips: a clip with too many words for its
length would count as noise."""

WORD_MS = 250
"Length of the audio per word of a partial."


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    delay_ms: Annotated[float, Meta(ge=0, le=10_000)] = 0
    "Duration of one call that has a final item, however many items it has."


class StubAsr:
    """An `AsrModel`. Every final has all WORDS; a partial has more with longer audio."""

    info = AsrInfo("stub", "stub", ("en",), max_batch=8, is_incremental=False)

    def __init__(self, settings: Settings) -> None:
        self._delay_s = settings.delay_ms / 1000

    def decode(self, items: Sequence[AsrItem]) -> list[AsrResult]:
        """See `AsrModel.decode`."""
        if any(item.is_final for item in items):
            time.sleep(self._delay_s)
        return [_result(item) for item in items]

    def forget(self, utterance: str) -> None: ...

    def close(self) -> None: ...


def create(settings: Settings) -> StubAsr:
    return StubAsr(settings)


def _result(item: AsrItem) -> AsrResult:
    length_ms = samples_to_ms(len(item.pcm), ASR_RATE_HZ)
    known = len(WORDS) if item.is_final else int(length_ms // WORD_MS)
    text = " ".join(WORDS[:known])
    return AsrResult(text, 1.0, "en", segments=(Segment(text, 0, length_ms),) if text else ())
