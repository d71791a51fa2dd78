"""Long audio through a real Whisper in its worker and the real VAD: every word comes in order."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import cycle, pairwise
from pathlib import Path

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from core.conversation.events import HypothesisChanged, SessionEvent, TranscriptionCompleted
from engines.base import AsrInfo, AsrItem, AsrOptions, AsrResult
from engines.registry import load
from media.files.decode import decode_file
from pipeline.conversation.conversation import Conversations
from pipeline.services import EngineSet, SessionServices
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import SessionSettings
from pipeline.tools.toolbox import Toolbox
from pipeline.transcription.recording import Transcriber, Transcript
from pipeline.transcription.segmenter import Segmenter
from serving.asr.scheduling import ASR_SCHEDULING, DecodePriority
from serving.scheduling.scheduler import Scheduler
from serving.workers.process import ProcessWorker
from tests.pipeline.fakes import Counts, EchoLlm, LoopClock, ToneTts, collect
from tests.shared import shared_data
from tests.speech import say

pytestmark = pytest.mark.live

NANO = Path(__file__).parents[1] / "fixtures" / "whisper-nano"
COMMANDS = (
    "open the garage door",
    "what time is it",
    "turn on the kitchen lights",
    "add milk and bread to the shopping list",
)
PAUSE_MS = 3500
"The tiny model knows commands, not sequences of them: each must come alone."


class Done(Exception):
    pass


class Loaded(Scheduler[AsrItem, AsrResult]):
    """A recogniser whose model is always in memory."""

    info: AsrInfo

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        return await self.submit(item, priority)

    def hold(self) -> AbstractContextManager[None]:
        return nullcontext()


def commands(seconds: float) -> tuple[Pcm, str, list[float]]:
    """Returns audio of at least `seconds`, its transcript, and the start of each command in ms."""
    clips: list[Pcm] = [np.zeros(8000, np.int16)]
    said: list[str] = []
    starts_ms: list[float] = []
    for command in cycle(COMMANDS):
        if sum(map(len, clips)) >= seconds * ASR_RATE_HZ:
            break
        said.append(command)
        starts_ms.append(sum(map(len, clips)) * 1000 / ASR_RATE_HZ)
        clips.append(say(command, tail_ms=PAUSE_MS))
    return np.concatenate(clips), " ".join(said), starts_ms


def with_engines(scenario: Callable[[EngineSet], Awaitable[None]]) -> Counts:
    metrics = Counts()

    async def main() -> None:
        worker = ProcessWorker(
            "asr", "faster_whisper", {"model": str(NANO), "cpu_threads": 1}, metrics
        )
        scheduler = Loaded([worker], ASR_SCHEDULING, LoopClock(), metrics)
        async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
            tasks.create_task(scheduler.run())
            await scheduler.ready()
            scheduler.info = await worker.ready()
            vad = load("vad", "gated", {})
            await scenario(
                EngineSet(
                    vad, {"default": scheduler}, {"default": EchoLlm()}, {"default": ToneTts()}
                )
            )
            assert scheduler.open_sequences == 0
            raise Done

    with pytest.raises(ExceptionGroup) as ended:
        asyncio.run(main())
    assert ended.group_contains(Done)
    assert len(ended.value.exceptions) == 1
    return metrics


def words_of(text: str) -> list[str]:
    return text.lower().replace(".", "").replace(",", "").replace("?", "").split()


def test_all_words_of_a_recording_of_70_seconds() -> None:
    pcm, said, starts_ms = commands(70)
    found: list[Transcript] = []

    async def scenario(engines: EngineSet) -> None:
        async with Transcriber(engines).open("default", AsrOptions("en")) as recording:
            for at in range(0, len(pcm), 32_000):
                await recording.push(pcm[at : at + 32_000])
            recording.end()
            found.append(await recording.transcript())

    with_engines(scenario)
    (transcript,) = found
    assert words_of(transcript.text) == said.split()
    assert transcript.audio_ms == len(pcm) * 1000 / ASR_RATE_HZ > 70_000
    assert [s.start_ms for s in transcript.segments] == pytest.approx(starts_ms, abs=700)
    assert all(a.end_ms <= b.start_ms for a, b in pairwise(transcript.segments))


@pytest.mark.parametrize(
    ("path", "pieces"),
    [
        ("music/hungarian_dance.ogg", 0),
        ("music/sugar_plum.ogg", 0),
        ("noise/speechbrain_noise1.wav", 0),
        ("speech/long/LJ001-all.ogg", 10),
    ],
)
def test_audio_without_a_voice_is_not_sent_to_the_recogniser(path: str, pieces: int) -> None:
    window = 30 * ASR_RATE_HZ
    cutter = Segmenter(load("vad", "gated", {}).open(), window)
    found = cutter.push(decode_file(shared_data(*path.split("/")))) + cutter.end()
    assert len(found) == pieces
    assert all(len(piece.pcm) <= window for piece in found)


def test_an_eager_decode_gives_the_same_text_as_a_plain_one() -> None:
    pcm = say(COMMANDS[3], lead_ms=300, tail_ms=600)
    texts: list[str] = []

    async def scenario(engines: EngineSet) -> None:
        for eager in (False, True):
            opened = Transcriber(engines).open(
                "default", AsrOptions("en"), priority=DecodePriority.FINAL, eager=eager
            )
            async with opened as recording:
                for at in range(0, len(pcm), 1600):
                    await recording.push(pcm[at : at + 1600])
                recording.end()
                texts.append((await recording.transcript()).text)

    with_engines(scenario)
    assert texts[0] == texts[1]
    assert words_of(texts[0]) == COMMANDS[3].split()


def test_all_words_of_40_seconds_of_push_to_talk() -> None:
    pcm, said, _ = commands(40)
    told: list[SessionEvent] = []

    async def scenario(engines: EngineSet) -> None:
        metrics = Counts()
        services = SessionServices(engines, Toolbox([], metrics), LoopClock(), metrics)
        settings = SessionSettings(answers=False, language="en", turn_detection=None)
        opened = Sessions(services, Conversations(), max_sessions=1).open(
            settings, paced_by="client"
        )
        async with asyncio.TaskGroup() as tasks, opened as session:
            tasks.create_task(collect(session, told))
            for at in range(0, len(pcm), 8000):  # faster than it was spoken
                session.feed(AudioFrame(pcm[at : at + 8000], ASR_RATE_HZ, at))
                await asyncio.sleep(0.02)
            session.commit_input()
            await session.settled()

    metrics = with_engines(scenario)
    (transcribed,) = [event for event in told if isinstance(event, TranscriptionCompleted)]
    assert words_of(transcribed.transcript) == said.split()
    stables = [event.stable for event in told if isinstance(event, HypothesisChanged)]
    assert all(after.startswith(before) for before, after in pairwise(stables))
    assert metrics.counts.get("earshot_errors", 0) == 0
