"""Speech recognition as the transcription of sessions and recordings sees it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from engines.base import AsrInfo, AsrItem, AsrOptions, AsrPadding, AsrResult, VadEngine
from pipeline.transcription.no_speech import NoSpeechCriterion
from serving.asr.scheduling import DecodePriority

OnWastedWork = Callable[[float], None]
"""Called with the seconds of recogniser work that was not needed, because an utterance or recording
continued after a pause."""


def ignore_waste(_: float) -> None:
    """Counts nothing."""


class Recogniser(Protocol):
    """Speech recogniser as sessions see it: one shared model behind a scheduler."""

    @property
    def info(self) -> AsrInfo:
        """Name, limits and abilities of the recogniser."""
        ...

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        """Returns the result of one item. Raises EngineError, OverloadedError."""
        ...

    def forget(self, utterance: str) -> None:
        """Frees what workers keep for an utterance that was cancelled."""
        ...

    def hold(self) -> AbstractContextManager[None]:
        """Keeps the recogniser in memory while the context is open; loads it if needed."""
        ...

    def admit(self, priority: DecodePriority) -> None:
        """Checks before work of many requests whether there is room. Raises OverloadedError when
        the wait would be too long."""
        ...

    def promote(self, utterance: str) -> None:
        """Makes a speculative decode urgent: the utterance is over, so the result is needed now."""
        ...


class Recognisers(Protocol):
    """Recognisers by name, loaded or not. Iterating gives the names; a Mapping is a `Recognisers`,
    too."""

    def get(self, name: str, /) -> Recogniser | None:
        """Returns the recogniser with this name, or None."""
        ...

    def __iter__(self) -> Iterator[str]: ...


class RecordingEngines(Protocol):
    """Engines as the transcription of recordings uses them. `pipeline.services.EngineSet`
    implements it, and documents the methods."""

    @property
    def vad(self) -> VadEngine: ...

    @property
    def on_wasted(self) -> OnWastedWork: ...

    def recogniser(self, name: str, *, param: str = ...) -> Recogniser:
        """The recogniser of this name. Raises NotFound model_not_found."""
        ...

    def recogniser_name(self, name: str) -> str: ...

    def recognition(self, requested: AsrOptions) -> AsrOptions: ...

    def no_speech_criterion(
        self, name: str, no_speech_threshold: float | None
    ) -> NoSpeechCriterion: ...

    def fallback_padding(self, name: str, wanted: AsrPadding | None) -> AsrPadding | None: ...

    def hold(self, name: str) -> AbstractContextManager[None]: ...

    def admit(self, name: str, priority: DecodePriority) -> None: ...
