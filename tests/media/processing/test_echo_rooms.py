"""Our eSpeak voice in simulated rooms, through our own turn detection: only people are answered.

Each test checks a property that `python -m bench.measurements.echo` measures on many more rooms.
"""

import sys
from pathlib import Path
from subprocess import run

import numpy as np
import pytest

from bench.measurements.echo.__main__ import people
from bench.measurements.echo.answers import Interrupter, SpeechOnset, interruption, talk
from bench.measurements.echo.rooms import EchoRoom
from bench.tools.word_errors import spoken_words, word_errors
from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms
from engines.base import AsrItem, VadEngine
from engines.registry import load
from media.processing.aec3 import EchoCanceller
from media.processing.echo import EchoControl, HalfDuplexEchoControl, NoEchoControl
from tests.shared import ROOT, shared_data

pytestmark = pytest.mark.live

CONVERGED = 2 * ASR_RATE_HZ
"The time from the session's first sound after which no echo may start a turn."
LATE_MS = 150
"The most that an echo may delay the detection of most people,"
VERY_LATE_MS = 1000
"and of any person."
PEOPLE = 6


@pytest.fixture(scope="module")
def vad() -> VadEngine:
    return load("vad", "gated", {})


@pytest.fixture(scope="module")
def far() -> Pcm:
    """Renders the answers in a new process, because eSpeak's sound depends on all it has said
    before."""
    script = (
        "import sys; from bench.measurements.echo.__main__ import answers; "
        "sys.stdout.buffer.write(answers().data)"
    )
    done = run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, check=True)
    return np.frombuffer(done.stdout, np.int16)


def own_voice(echoes: EchoControl, far: Pcm, scene: EchoRoom, vad: VadEngine) -> list[SpeechOnset]:
    """Returns the starts of speech that were found although nobody spoke."""
    one = talk(echoes, far, scene, vad)
    return [start for start in one.starts if start.at >= one.first_sound + CONVERGED]


@pytest.mark.parametrize("level_db", [-20, -10, 0])
@pytest.mark.parametrize("delay_ms", [0, 40, 120, 300])
def test_the_assistants_own_voice_starts_no_turn(
    delay_ms: float, level_db: float, far: Pcm, vad: VadEngine
) -> None:
    scene = EchoRoom(delay_ms=delay_ms, level_db=level_db)
    assert not own_voice(EchoCanceller(), far, scene, vad)


HARD = {
    "at once": EchoRoom(delay_ms=0, level_db=-10, t60_s=0.4, seed=8),
    "large room": EchoRoom(t60_s=0.6),
    "overdriven": EchoRoom(level_db=0, clip=4),
    "drift": EchoRoom(drift_ppm=50),
    "jump": EchoRoom(jump_ms=80),
    "shrinking": EchoRoom(delay_ms=200, jump_ms=-40),
    "late": EchoRoom(delay_ms=700),
}


def test_at_most_two_hard_rooms_start_false_turns(far: Pcm, vad: VadEngine) -> None:
    """Where the delay jumps, the echo of an answer may start a turn, depending on the text."""
    heard = [name for name, scene in HARD.items() if own_voice(EchoCanceller(), far, scene, vad)]
    assert len(heard) <= 2, heard


def test_half_duplex_starts_no_turn_by_an_echo(far: Pcm, vad: VadEngine) -> None:
    assert not own_voice(HalfDuplexEchoControl(), far, EchoRoom(delay_ms=300, t60_s=0.6), vad)


def test_without_echo_control_the_assistants_voice_starts_a_turn(far: Pcm, vad: VadEngine) -> None:
    assert len(own_voice(NoEchoControl(), far, EchoRoom(level_db=-20), vad)) > 0


def interruptions(
    level_db: float, far: Pcm, vad: VadEngine
) -> list[tuple[str, SpeechOnset | None, int]]:
    """Returns each person's words, the start that was found, and its delay in samples compared with
    headphones."""
    found: list[tuple[str, SpeechOnset | None, int]] = []
    for person, said in people(shared_data("commands").parent, PEOPLE):
        alone = start_of(person, NoEchoControl(), None, far, vad)
        assert alone is not None
        scene = EchoRoom(level_db=level_db)
        over = start_of(person, EchoCanceller(), scene, far, vad)
        found.append((said, over, over.detected_at - alone.detected_at if over else 0))
    return found


def start_of(
    person: Interrupter, echoes: EchoControl, scene: EchoRoom | None, far: Pcm, vad: VadEngine
) -> SpeechOnset | None:
    return interruption(talk(echoes, far, scene, vad, person).starts, person)


@pytest.mark.real
@pytest.mark.parametrize("level_db", [-20, -10])
def test_a_person_can_interrupt_and_is_transcribed(
    level_db: float, far: Pcm, vad: VadEngine
) -> None:
    folder = Path(ROOT, "tests", "fixtures", "whisper-nano")
    nano = load("asr", "faster_whisper", {"model": str(folder), "cpu_threads": 1})
    wrong = total = 0
    found = interruptions(level_db, far, vad)
    late_ms = sorted(samples_to_ms(late, ASR_RATE_HZ) for _, _, late in found)
    assert late_ms[len(late_ms) // 2] <= LATE_MS
    assert late_ms[-1] <= VERY_LATE_MS
    for said, start, _ in found:
        assert start is not None
        words = spoken_words(said)
        text = nano.decode([AsrItem(said, np.concatenate(start.speech), is_final=True)])[0].text
        wrong += word_errors(words, spoken_words(text))
        total += len(words)
    nano.close()
    assert wrong <= total / 2
