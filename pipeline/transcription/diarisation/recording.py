"""Finds out who speaks when in one recording, while it is transcribed."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from core.conversation.speakers import SpeakerProfile, VoiceVector
from core.errors import EngineError, OverloadedError
from core.tasks import single_error
from pipeline.transcription.diarisation.segments import SpeakerTimes
from pipeline.transcription.diarisation.timeline import find_speakers
from pipeline.transcription.diarisation.windows import Window, segment_windows
from pipeline.transcription.segmenter import AudioSegment
from serving.speaker.recognition import RecordingVoices

MAX_WAITING = 2
"""Most segments, of 30 s each, whose voices are still to be computed. Then the recording waits, so
that a long one does not lie in memory."""


@asynccontextmanager
async def open_speakers(
    voices: RecordingVoices, named: Sequence[SpeakerProfile]
) -> AsyncIterator["RecordingSpeakers"]:
    """Opens the speakers of a recording. Leaving the context early cancels the work.

    `named`: people whom the request names; they come before those that the key knows.
    """
    with single_error():
        async with asyncio.TaskGroup() as tasks:
            speakers = RecordingSpeakers(voices, named, tasks)
            try:
                yield speakers
            finally:
                speakers.close()


class RecordingSpeakers:
    """Speakers of one recording. Call `take` with each of its segments, then `finish` once.

    The vectors are computed by the model's worker process, one at a time, and sorted in a thread.
    """

    def __init__(
        self, voices: RecordingVoices, named: Sequence[SpeakerProfile], tasks: asyncio.TaskGroup
    ) -> None:
        self._voices, self._known = voices, (named, voices.profiles)
        self._segments: asyncio.Queue[AudioSegment | None] = asyncio.Queue(MAX_WAITING)
        self._windows: list[Window] = []
        self._vectors: list[VoiceVector | None] = []
        self._failure: EngineError | OverloadedError | None = None
        self._task = tasks.create_task(self._run(), name="recording-speakers")

    async def take(self, segment: AudioSegment) -> None:
        """Adds the next segment. Waits while too many are still to be computed.

        Raises EngineError, OverloadedError when the model has already failed.
        """
        self._raise_if_failed()
        await self._segments.put(segment)

    async def finish(self) -> SpeakerTimes:
        """Waits for the last segments, and returns who speaks when. Raises EngineError,
        OverloadedError when the model fails."""
        await self._segments.put(None)
        await self._task
        self._raise_if_failed()
        spans = await asyncio.to_thread(
            find_speakers, self._windows, self._vectors, self._known, self._voices.thresholds
        )
        return SpeakerTimes(spans)

    def close(self) -> None:
        """Ends the work."""
        self._task.cancel()

    async def _run(self) -> None:
        while (segment := await self._segments.get()) is not None:
            if self._failure is None:
                try:
                    await self._hear(segment)
                except (EngineError, OverloadedError) as error:
                    self._failure = error  # raised here, it would end the group

    async def _hear(self, segment: AudioSegment) -> None:
        for window, pcm in await asyncio.to_thread(segment_windows, segment):
            self._windows.append(window)
            self._vectors.append(None if pcm is None else await self._voices.vector(pcm))

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise self._failure
