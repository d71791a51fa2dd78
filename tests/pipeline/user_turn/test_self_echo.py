"""A session in a room in which its microphone records its own voice: how often it answers itself.

The recogniser of these tests returns words for every sound, so only the canceller and the VAD
prevent an answer to an echo. A real recogniser could also return none.
"""

import asyncio
import sys
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable
from dataclasses import dataclass, field
from subprocess import run

import numpy as np
import pytest

from bench.measurements.echo.rooms import NEAR_RMS, ROOM_RMS, Wave, room
from core.audio import ASR_RATE_HZ, PTIME_MS, AudioFrame, Pcm, ms_to_samples
from core.conversation.events import ResponseCreated, SessionEvent, TranscriptionCompleted
from engines.base import AsrItem, AsrResult, TtsInfo, VadEngine, WordMark
from engines.registry import load
from media.processing.modes import EchoMode
from media.resample import Resampler
from pipeline.session.session import Session
from pipeline.shared.settings import ResponseRequest, SessionSettings
from serving.asr.scheduling import DecodePriority
from tests.pipeline.fakes import LevelAsr, ToneTts, World
from tests.pipeline.scenes import of, run_session
from tests.shared import ROOT

pytestmark = pytest.mark.live

FRAME = ms_to_samples(PTIME_MS, ASR_RATE_HZ)
T60_S = 0.3
PERSON_FROM = 2 * ASR_RATE_HZ
"The start of the person's words in the sound, where there is no pause."


@pytest.fixture(scope="module")
def far() -> Pcm:
    """Returns answers spoken by our eSpeak in its own process, because its output depends on
    everything it said before."""
    script = (
        "import sys; from bench.measurements.echo.__main__ import answers; "
        "sys.stdout.buffer.write(answers().data)"
    )
    done = run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.int16)


@pytest.fixture(scope="module")
def vad() -> VadEngine:
    return load("vad", "gated", {})


class CredulousAsr(LevelAsr):
    """A recogniser that returns two words for everything: enough to end an answer and to request
    another."""

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        silent = AsrItem(item.utterance, np.zeros(320, np.int16), item.is_final, item.options)
        await super().decode(silent, priority)
        return AsrResult("stop that", 0.9, "en")


class VoiceOf(ToneTts):
    """A voice that plays the given sound for the first text, and nothing for others."""

    info = TtsInfo("voice", ASR_RATE_HZ, {"en": ("it",)})

    def __init__(self, said: Pcm) -> None:
        super().__init__()
        self._left: deque[Pcm] = deque(np.array_split(said, len(said) // 1600))

    async def speak(
        self,
        text: AsyncIterable[str],
        *,
        language: str,
        voice: str | None = None,
        speed: float = 1,
        on_word: Callable[[WordMark], None] | None = None,
    ) -> AsyncGenerator[AudioFrame, None]:
        start = 0
        async for _ in text:
            while self._left:
                pcm = self._left.popleft()
                yield AudioFrame(pcm, ASR_RATE_HZ, start)
                start += len(pcm)


@dataclass
class Room:
    """A room that returns the played sound, `delay_ms` later, `level_db` above the level of a
    person."""

    far: Pcm
    delay_ms: float
    level_db: float
    seed: int = 1
    _tail: Wave = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        response = room(T60_S, self.seed)
        loud = np.abs(self.far) > 300
        rms = float(np.sqrt(np.mean((self.far[loud] / 32768) ** 2)))
        gain = NEAR_RMS * 10 ** (self.level_db / 20) / (rms * np.sqrt(1.5))
        early = np.zeros(ms_to_samples(self.delay_ms, ASR_RATE_HZ))
        self._response = np.concatenate([early, gain * response])
        self._noise = np.random.default_rng(self.seed)

    def microphone(self, played: Pcm) -> Pcm:
        """Returns 20 ms of audio at 16 kHz."""
        wave = np.convolve(played / 32768, self._response)
        wave[: len(self._tail)] += self._tail
        now, self._tail = wave[:FRAME] + self._noise.normal(0, ROOM_RMS, FRAME), wave[FRAME:]
        return np.clip(np.round(now * 32768), -32768, 32767).astype(np.int16)


def answers(
    far: Pcm,
    vad: VadEngine,
    mode: EchoMode,
    room_: Room,
    *,
    person: Pcm | None = None,
    at_ms: float | None = None,
) -> tuple[int, list[str]]:
    """Returns the number of answers to one request, and the words that were recognised meanwhile.

    `person` is a sound of which somebody says 2 s, from `at_ms` on or 2 s after the answer.
    """
    world = World(asr=CredulousAsr(0.01), tts=VoiceOf(far), vad=vad)

    async def scenario(session: Session) -> None:
        resampler = Resampler(session._playout.rate_hz, ASR_RATE_HZ, live=True)
        begins = len(far) // FRAME + 100 if at_ms is None else int(at_ms // PTIME_MS)
        speaking = range(begins, begins + 100)
        quiet = np.zeros(ms_to_samples(PTIME_MS, session._playout.rate_hz), np.int16)
        session.create_response(ResponseRequest())
        length = len(far) // FRAME + (100 if person is None else 300)
        for number in range(length):
            await asyncio.sleep(PTIME_MS / 1000)
            frame = session.pull()
            played = resampler.push(quiet if frame is None else frame.pcm)
            heard = room_.microphone(played)
            if person is not None and number in speaking:
                at = (number - speaking.start) * FRAME + PERSON_FROM
                heard = heard + person[at : at + FRAME]
            session.feed(AudioFrame(heard, ASR_RATE_HZ, 0))

    events: list[SessionEvent] = run_session(world, scenario, SessionSettings(echo=mode))
    words = [one.transcript for one in of(TranscriptionCompleted, events) if one.transcript]
    return len(of(ResponseCreated, events)), words


@pytest.mark.parametrize("level_db", [-20, -10, 0, 6])
@pytest.mark.parametrize("delay_ms", [0, 120, 400])
def test_with_cancellation_an_echo_is_not_answered(
    delay_ms: float, level_db: float, far: Pcm, vad: VadEngine
) -> None:
    heard = answers(far, vad, "cancel", Room(far, delay_ms, level_db, seed=int(delay_ms)))
    assert heard == (1, [])


def test_half_duplex_does_not_answer_an_echo_louder_than_people(far: Pcm, vad: VadEngine) -> None:
    assert answers(far, vad, "half_duplex", Room(far, 300, 6)) == (1, [])


def test_without_cancellation_an_echo_is_answered(far: Pcm, vad: VadEngine) -> None:
    count, words = answers(far, vad, "off", Room(far, 120, -20))
    assert count > 1
    assert words


@pytest.mark.parametrize("mode", ["cancel", "half_duplex"])
def test_a_person_is_answered_after_the_answer(mode: EchoMode, far: Pcm, vad: VadEngine) -> None:
    """The measures against echoes must not make the session deaf."""
    said = far[: len(far) // 4]
    assert answers(said, vad, mode, Room(far, 120, 6), person=far)[0] == 2


def test_a_person_who_interrupts_is_answered(far: Pcm, vad: VadEngine) -> None:
    """The person is the voice played backwards: it resembles a person and is no echo."""
    heard = answers(far, vad, "cancel", Room(far, 120, -10), person=far[::-1].copy(), at_ms=5000)
    assert heard[0] >= 2
