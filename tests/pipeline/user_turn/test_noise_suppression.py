"""A session with noise reduction: words stay, and their ends are found."""

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm
from core.conversation.events import SessionEvent, SpeechStarted, SpeechStopped
from media.pcm import dbfs
from media.processing.modes import NoiseMode
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings, TurnDetection
from tests.pipeline.fakes import FRAME, World
from tests.pipeline.scenes import of, run_session

pytestmark = pytest.mark.many

SECOND = ASR_RATE_HZ
WORDS = slice(3 * SECOND, 4 * SECOND)
LENGTH = 6 * SECOND
MAKES_LOUD = {"near_field": 200, "far_field": 400}
"Noise whose peaks are speech to the VAD of these tests (500), but not after this reduction."


def room(noise_level: float) -> Pcm:
    """Returns noise in which a voice says `aah` for a second."""
    noise = np.random.default_rng(1).normal(0, noise_level, LENGTH)
    at_s = np.arange(SECOND) / SECOND
    voice = sum(np.sin(2 * np.pi * 150 * n * at_s) / n for n in range(1, 12))
    noise[WORDS] += 5000 * voice * (0.6 + 0.4 * np.sin(2 * np.pi * 4 * at_s))
    pcm: Pcm = np.clip(noise, -32768, 32767).astype(np.int16)
    return pcm


async def play(session: Session, pcm: Pcm) -> None:
    for at in range(0, len(pcm), FRAME):
        await asyncio.sleep(FRAME / ASR_RATE_HZ)
        session.feed(AudioFrame(pcm[at : at + FRAME], ASR_RATE_HZ, at))


def settings(mode: NoiseMode) -> SessionSettings:
    detection = TurnDetection(silence_ms=300)
    return SessionSettings(answers=False, turn_detection=detection, noise_reduction=mode)


def heard_by(session: Session, into: list[Pcm]) -> None:
    """From now on collects the frames that would reach turn detection."""

    def listen(frame: AudioFrame) -> None:
        into.append(frame.pcm)

    session._user_turns.listen = listen  # type: ignore[method-assign]


def edges(events: Sequence[SessionEvent]) -> tuple[list[int], list[int]]:
    """Returns where speech started and stopped, in ms."""
    started = [one.audio_start_ms for one in of(SpeechStarted, [*events])]
    return started, [one.audio_end_ms for one in of(SpeechStopped, [*events])]


@pytest.mark.parametrize("mode", ["near_field", "far_field"])
def test_a_turn_kept_open_by_noise_ends_with_reduction(mode: NoiseMode) -> None:
    pcm = room(MAKES_LOUD[mode])

    async def scenario(session: Session) -> None:
        await play(session, pcm)

    started, stopped = edges(run_session(World(), scenario, settings("off")))
    assert stopped == [], "the noise goes on, and is speech to this VAD"
    started, stopped = edges(run_session(World(), scenario, settings(mode)))
    last_start, last_stop = started[-1], stopped[-1]
    assert last_start == pytest.approx(3000 - 300, abs=60), "with the padding before it"
    assert last_stop == pytest.approx(4000, abs=60)


@pytest.mark.parametrize(("mode", "least_db"), [("near_field", 5), ("far_field", 15)])
def test_noise_becomes_quieter_and_words_stay(mode: NoiseMode, least_db: float) -> None:
    pcm, frames = room(150), list[Pcm]()

    async def scenario(session: Session) -> None:
        heard_by(session, frames)
        await play(session, pcm)

    run_session(World(), scenario, settings(mode))
    out = np.concatenate(frames)
    noise = slice(2 * SECOND, 3 * SECOND - FRAME)
    assert len(out) == len(pcm)
    assert dbfs(pcm[noise]) - dbfs(out[noise]) > least_db
    assert abs(dbfs(pcm[WORDS]) - dbfs(out[WORDS])) < 1


def test_without_reduction_audio_passes_unchanged() -> None:
    pcm, frames = room(150), list[Pcm]()

    async def scenario(session: Session) -> None:
        heard_by(session, frames)
        await play(session, pcm[: SECOND // 2])

    run_session(World(), scenario, settings("off"))
    np.testing.assert_array_equal(np.concatenate(frames), pcm[: SECOND // 2])


def test_a_change_applies_from_the_next_frame() -> None:
    pcm, frames = room(150)[:SECOND], list[Pcm]()
    half = len(pcm) // 2

    async def scenario(session: Session) -> None:
        heard_by(session, frames)
        await play(session, pcm[:half])
        session.configure(settings("far_field"))
        await play(session, pcm[half:])
        session.configure(settings("off"))
        await play(session, pcm[:half])

    run_session(World(), scenario, settings("off"))
    out = np.concatenate(frames)
    np.testing.assert_array_equal(out[:half], pcm[:half])
    assert not np.array_equal(out[half : half + FRAME], pcm[half : half + FRAME])
    np.testing.assert_array_equal(out[2 * half :], pcm[:half])


def test_the_delay_of_the_reduction_does_not_move_the_end_of_speech() -> None:
    """The end of the last word is within a block of the one without noise reduction."""
    pcm = room(3)

    async def scenario(session: Session) -> None:
        await play(session, pcm)

    ends = [edges(run_session(World(), scenario, settings(m)))[1] for m in ("off", "far_field")]
    assert ends[1] == pytest.approx(ends[0], abs=5)
