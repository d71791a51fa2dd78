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
from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, silence
from core.conversation.items import MessageItem
from engines.base import AsrItem, AsrModel, AsrResult, VadEngine
from media.files.decode import decode_file
from media.pcm import Framer
from pipeline.conversation.conversation import Conversations
from pipeline.services import EngineSet, SessionServices
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import DEFAULT, SessionSettings
from pipeline.tools.toolbox import Toolbox
from pipeline.transcription.no_speech import (
    NoSpeechFilter,
    filter_no_speech,
    no_speech_criterion,
)
from pipeline.transcription.stitching import stitch_results
from serving.asr.scheduling import DecodePriority

CUT_S = 3
"Length of the pieces of long recordings, about as voice activity detection would cut them."
NOISE = ("noise/*", "music/*", "vad/pattern_n.wav", "vad/pattern_zero.wav")
"Patterns of the recordings without speech."

SINGING = "lets_go_fishin"
"Recording with a singer, counted apart: no VAD here distinguishes singing from speech."

TAIL_MS = 2000
"Silence after a recording, so that its last utterance ends."


@dataclass(frozen=True, slots=True)
class NoiseResult:
    """Result for one piece of noise."""

    name: str
    unfiltered: str
    "Text of the recogniser alone."
    filtered: str
    "Text after the no-speech filter, which also uses the VAD: this is what a client gets."

    @property
    def is_singing(self) -> bool:
        return self.name.startswith(SINGING)


def recordings_of_noise(data: Path) -> list[Path]:
    """Returns the recordings without speech."""
    return sorted(path for pattern in NOISE for path in data.glob(pattern))


def decode_whole(model: AsrModel, name: str, pcm: Pcm) -> AsrResult:
    """Decodes a whole recording as one utterance; in windows if the model takes no longer audio.
    `pcm`: 16 kHz."""
    window_ms = model.info.window_ms
    size = ms_to_samples(window_ms, ASR_RATE_HZ) if window_ms else max(1, len(pcm))
    windows = [pcm[at : at + size] for at in range(0, max(1, len(pcm)), size)]
    names = [name, *(f"{name} {number}" for number in range(2, len(windows) + 1))]
    items = [AsrItem(name, pcm, is_final=True) for name, pcm in zip(names, windows, strict=True)]
    results = [model.decode([item])[0] for item in items]
    return stitch_results([(result, len(w)) for result, w in zip(results, windows, strict=True)])


def speech_evidence(vad: VadEngine, pcm: Pcm) -> NoSpeechFilter:
    """Returns the evidence of speech in a whole recording, as for an upload. `pcm`: 16 kHz."""
    detector, evidence = vad.open(), NoSpeechFilter()
    size = detector.frame_samples
    for at in range(0, len(pcm) - size + 1, size):
        evidence.push(detector.push(pcm[at : at + size]), size)
    return evidence


def decode_recordings(model: AsrModel, vad: VadEngine, data: Path) -> Iterator[NoiseResult]:
    """Decodes each recording, whole and in pieces, as if it were a detected utterance."""
    for path in recordings_of_noise(data):
        pcm = decode_file(path)
        cut = CUT_S * ASR_RATE_HZ
        starts = range(0, len(pcm) if len(pcm) > cut else 0, cut)
        pieces = [(f"{path.name} at {at // ASR_RATE_HZ} s", pcm[at : at + cut]) for at in starts]
        for name, piece in [(path.name, pcm), *pieces]:
            unfiltered = decode_whole(model, name, piece)
            criterion = no_speech_criterion("normal", model.info, None)
            kept = filter_no_speech(unfiltered, speech_evidence(vad, piece), criterion)
            yield NoiseResult(name, unfiltered.text, kept.text)


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

    def promote(self, utterance: str) -> None: ...

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
    services = SessionServices(
        engines, Toolbox([], NullMetrics()), RunningLoopClock(), NullMetrics()
    )
    async with (
        Sessions(services, conversations, 1).open(transcription, paced_by="server") as session,
        asyncio.TaskGroup() as tasks,
    ):
        reading = tasks.create_task(_read(session), name="noise-events")
        await _play(session, pcm)
        reading.cancel()
        items = conversations.get(session.conversation_id).history.items
    found = list[NoiseResult]()
    for number, item in enumerate(items):
        assert isinstance(item, MessageItem)
        unfiltered = recogniser.text_of(item.id)
        found.append(NoiseResult(f"{name} utterance {number}", unfiltered, item.text))
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


def noise_rows(title: str, results: Sequence[NoiseResult]) -> Iterator[tuple[str, str]]:
    """Yields the rows of the table: name and value."""
    yield title, f"{len(results)}"
    yield (
        f"{title}: the recogniser alone returns text",
        f"{sum(bool(n.unfiltered) for n in results)}",
    )
    with_text = [result for result in results if result.filtered]
    singing = sum(result.is_singing for result in with_text)
    yield f"{title}: text without singing, with singing", f"{len(with_text) - singing}, {singing}"
