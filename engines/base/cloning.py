"""Protocol of voices that are made of recordings."""

from typing import Protocol, runtime_checkable

from core.audio import Pcm


@runtime_checkable
class CloningTts(Protocol):
    """A `Tts` that also speaks in voices made of recordings, once it holds them."""

    async def voice_condition(self, pcm: Pcm) -> bytes:
        """Returns the condition of the voice in a recording: all that the engine needs in order to
        speak in it. `pcm`: speech at `TtsInfo.rate_hz`. Raises EngineError."""
        ...

    def hold_voice(self, voice: str, condition: bytes) -> None:
        """Keeps a voice in memory, so that `speak` knows it by this name. Few are kept: the least
        recently used ones are dropped. Raises EngineError for a condition of another model."""
        ...

    def forget_voice(self, voice: str) -> None:
        """Drops a voice. Does nothing for one that is not held."""
        ...
