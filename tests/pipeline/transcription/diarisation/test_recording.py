"""The speakers of one recording: their voices are computed while it goes on, and the work ends with
it."""

import asyncio
from typing import Any

import numpy as np
import pytest

from core.audio import Pcm
from core.conversation.speakers import GE2E_THRESHOLDS, SpeakerProfile, VoiceVector
from core.errors import EngineCrashed
from engines.base import AsrOptions
from pipeline.transcription.diarisation.recording import MAX_WAITING, open_speakers
from pipeline.transcription.recording import Transcriber
from pipeline.transcription.segmenter import AudioSegment, Segmenter
from tests.loop import run_virtual
from tests.pipeline.fakes import LevelAsr, LoudVad, World
from tests.pipeline.scripted import MS, audio

ONE, TWO = np.eye(2, dtype=np.float32)


class Voices:
    """Hears a voice in each level, while it is open."""

    profiles = (SpeakerProfile("spk_1", "Anna", TWO),)
    thresholds = GE2E_THRESHOLDS

    def __init__(self) -> None:
        self.is_open = asyncio.Event()
        self.is_broken = False
        self.heard_ms: list[float] = []
        self.under_way = 0

    async def vector(self, pcm: Pcm) -> VoiceVector | None:
        self.under_way += 1
        try:
            await self.is_open.wait()
        finally:
            self.under_way -= 1
        if self.is_broken:
            raise EngineCrashed("speaker", "ge2e", "broken on purpose")
        self.heard_ms.append(len(pcm) / MS)
        return ONE if np.median(pcm) == 1000 else TWO


def segments(pcm: Pcm) -> list[AudioSegment]:
    segmenter = Segmenter(LoudVad(), 5000 * MS)
    return [*segmenter.push(pcm), *segmenter.end()]


TALK = audio((1000, 3000), (0, 300), (2000, 3000), (0, 300), (1000, 3000), (0, 300), (2000, 3000))


def test_speakers_are_found_while_a_recording_is_transcribed() -> None:
    async def main() -> None:
        voices: Any = Voices()
        voices.is_open.set()
        transcriber = Transcriber(World(asr=LevelAsr(window_ms=5000)).services().engines)
        async with (
            open_speakers(voices, ()) as speakers,
            transcriber.open("default", AsrOptions("en"), on_segment=speakers.take) as recording,
        ):
            for at in range(0, len(TALK), 1000 * MS):
                await recording.push(TALK[at : at + 1000 * MS])
            recording.end()
            transcript = await recording.transcript()
            times = await speakers.finish()
        assert transcript.text == "one two one two"
        names = [times.speaker(one.start_ms, one.end_ms) for one in transcript.segments]
        assert (len(names), {*names}) == (len(transcript.segments), {"A", "Anna"})
        assert [times.speaker(at, at + 1) for at in (1000, 4000, 8000, 11_000)] == ["A", "Anna"] * 2

    run_virtual(main())


def test_a_recording_waits_while_voices_are_behind() -> None:
    async def main() -> None:
        voices: Any = Voices()
        pieces = segments(np.concatenate([TALK] * 4))
        assert len(pieces) > MAX_WAITING + 2
        async with open_speakers(voices, ()) as speakers:
            taken = 0

            async def feed() -> None:
                nonlocal taken
                for piece in pieces:
                    await speakers.take(piece)
                    taken += 1

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(feed())
                await asyncio.sleep(10)
                assert taken == MAX_WAITING + 1  # one is being computed
                voices.is_open.set()
            await speakers.finish()
        assert taken == len(pieces)

    run_virtual(main())


def test_leaving_early_ends_the_work() -> None:
    async def main() -> None:
        voices: Any = Voices()
        async with open_speakers(voices, ()) as speakers:
            await speakers.take(segments(TALK)[0])
            await asyncio.sleep(1)
            assert voices.under_way == 1
        assert voices.under_way == 0

    run_virtual(main())


def test_an_error_of_the_model_ends_the_recording() -> None:
    async def main() -> None:
        voices: Any = Voices()
        voices.is_broken = True
        voices.is_open.set()
        async with open_speakers(voices, ()) as speakers:
            for piece in segments(np.concatenate([TALK] * 4)):
                await speakers.take(piece)
            await speakers.finish()

    with pytest.raises(EngineCrashed):
        run_virtual(main())
