"""Recordings without speech: the text that a recogniser makes up, and the text that a client gets.

`python -m bench.measurements.accuracy --only noise` counts both.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.server.stub_engines.scheduled_asr import NullMetrics, RunningLoopClock
from bench.tools.utterances import evidence_of, hear_whole
from core.audio import ASR_RATE_HZ, Pcm, silence
from core.items import MessageItem
from engines.base import AsrItem, AsrModel, AsrResult, VadEngine
from media.files.decode import decode_file
from media.pcm import Framer
from pipeline.conversation.conversation import Conversations
from pipeline.services import EngineSet, SessionServices
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import DEFAULT, SessionSettings
from pipeline.tools.toolbox import Toolbox
from pipeline.transcription.no_speech import filter_no_speech, no_speech_criterion
from serving.scheduling.scheduler import DecodePriority

CUT_S = 3
"Length of the pieces of long recordings, about as voice activity detection would cut them."
NOISE = ("noise/*", "music/*", "vad/pattern_n.wav", "vad/pattern_zero.wav")
SUNG = "lets_go_fishin"
"Recording with a singer, counted apart: no VAD here distinguishes singing from speech."

TAIL_MS = 2000
"Silence after a recording, so that its last utterance ends."


@dataclass(frozen=True, slots=True)
class NoiseResult:
    """Result for one piece of noise."""

    name: str
    alone: str
    "Text of the recogniser alone."
    judged: str
    "Text after the no-speech filter, which also uses the VAD: this is what a client gets."

    @property
    def is_sung(self) -> bool:
        return self.name.startswith(SUNG)


def recordings_of_noise(data: Path) -> list[Path]:
    """Returns the recordings without speech."""
    return sorted(path for pattern in NOISE for path in data.glob(pattern))


def offered(model: AsrModel, vad: VadEngine, data: Path) -> Iterator[NoiseResult]:
    """Decodes each recording, whole and in pieces, as if it were a detected utterance."""
    for path in recordings_of_noise(data):
        pcm = decode_file(path)
        cut = CUT_S * ASR_RATE_HZ
        starts = range(0, len(pcm) if len(pcm) > cut else 0, cut)
        pieces = [(f"{path.name} at {at // ASR_RATE_HZ} s", pcm[at : at + cut]) for at in starts]
        for name, piece in [(path.name, pcm), *pieces]:
            alone = hear_whole(model, name, piece)
            judge = no_speech_criterion("normal", model.info, None)
            told = filter_no_speech(alone, evidence_of(vad, piece), judge)
            yield NoiseResult(name, alone.text, told.text)


class UnsharedRecogniser:
    """`Recogniser` for one session at a time: the model itself, without queue and process."""

    def __init__(self, model: AsrModel) -> None:
        self.info = model.info
        self._model = model
        self._newest: dict[str, AsrResult] = {}

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        result = self._model.decode([item])[0]
        self._newest[item.utterance] = result
        return result

    def forget(self, utterance: str) -> None:
        self._model.forget(utterance)

    def hold(self) -> AbstractContextManager[None]:
        return nullcontext()

    def admit(self, priority: DecodePriority) -> None: ...

    def hurry(self, utterance: str) -> None: ...

    def text_of(self, item_id: str) -> str:
        """Returns the recogniser's own final text of an utterance, before any filter."""
        parts = [result.text for name, result in self._newest.items() if name.startswith(item_id)]
        return " ".join(text for text in parts if text)


async def live(model: AsrModel, vad: VadEngine, data: Path) -> list[NoiseResult]:
    """Sends each recording through a session of its own, faster than real time; returns the
    utterances."""
    found = list[NoiseResult]()
    for path in recordings_of_noise(data):
        found += await hear_live(model, vad, path.name, decode_file(path))
    return found


async def hear_live(model: AsrModel, vad: VadEngine, name: str, pcm: Pcm) -> list[NoiseResult]:
    """Returns the utterances of one session that transcribes."""
    transcription = SessionSettings(answers=False)
    recogniser, conversations = UnsharedRecogniser(model), Conversations()
    engines = EngineSet(vad, {DEFAULT: recogniser}, {}, {})
    around = SessionServices(engines, Toolbox([], NullMetrics()), RunningLoopClock(), NullMetrics())
    async with (
        Sessions(around, conversations, 1).open(transcription, paced_by="server") as session,
        asyncio.TaskGroup() as tasks,
    ):
        reading = tasks.create_task(_read(session), name="noise-events")
        await _play(session, pcm)
        reading.cancel()
        said = conversations.get(session.conversation_id).history.items
    found = list[NoiseResult]()
    for number, item in enumerate(said):
        assert isinstance(item, MessageItem)
        alone = recogniser.text_of(item.id)
        found.append(NoiseResult(f"{name} utterance {number}", alone, item.text))
    return found


async def _play(session: Session, pcm: Pcm) -> None:
    whole = np.concatenate([pcm, silence(TAIL_MS, ASR_RATE_HZ)])
    for frame in Framer(ASR_RATE_HZ).push(whole):
        session.feed(frame)
        await asyncio.sleep(0)  # lets the session's other tasks run
    await session.settled()


async def _read(session: Session) -> None:
    """Reads and drops the events: unread events would end the session."""
    async for _ in session.events:
        continue


def noise_rows(title: str, all_noise: Sequence[NoiseResult]) -> Iterator[tuple[str, str]]:
    """Yields the rows of the table: name and value."""
    yield title, f"{len(all_noise)}"
    yield f"{title}: the recogniser alone answers", f"{sum(bool(n.alone) for n in all_noise)}"
    answered = [one for one in all_noise if one.judged]
    sung = sum(one.is_sung for one in answered)
    yield f"{title}: answered without singing, singing", f"{len(answered) - sung}, {sung}"
