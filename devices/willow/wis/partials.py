"""Words while they are spoken, for clients that ask for them; the text that counts comes later."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from core.audio import Pcm
from core.errors import EarshotError
from core.ids import new_id
from core.ports import Clock
from core.tasks import single_error
from engines.base import AsrOptions
from pipeline.services import Recogniser
from pipeline.transcription.stable_prefix import PartialHypothesis
from pipeline.transcription.stream import TranscriptStream
from pipeline.transcription.writing import join_texts


@asynccontextmanager
async def partial_transcripts(
    recogniser: Recogniser, options: AsrOptions, clock: Clock, tell: Callable[[str, str], None]
) -> AsyncIterator[Callable[[Pcm], None]]:
    """Gives what takes the sound; `tell` gets all words so far, and those that will stay.

    Partials are the first thing to go when the server is busy: then there are none.
    """

    def found(agreed: PartialHypothesis, _: int) -> None:
        tell(join_texts([agreed.stable, agreed.unstable]), agreed.stable)

    def lost(_: EarshotError) -> None:
        pass

    with single_error():
        async with asyncio.TaskGroup() as tasks:
            utterance = TranscriptStream(recogniser, new_id("item"), options, clock, tasks)
            utterance.follow(found, lost)
            try:
                yield utterance.push
            finally:
                utterance.discard()
