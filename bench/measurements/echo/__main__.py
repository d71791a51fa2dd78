r"""Measures whether the assistant reacts to its own voice, and whether it can still be interrupted.

    python -m bench.measurements.echo --data ../shared/data --model tests/fixtures/whisper-nano
    python -m bench.measurements.echo --data ../shared/data --quick \
        --only EchoCanceller "half duplex"

Rooms and loudspeakers are simulated (bench/measurements/echo/rooms.py). The assistant's voice is
eSpeak, and people are the commands of the data folder. As in a session the answer stops once a
person is recognised. Other libraries are measured if they are installed: `pip install livekit
pyaec`.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.client.microphone import RATE_HZ
from bench.measurements.accuracy import transcripts
from bench.measurements.echo.answers import EchoRun, Interrupter, interruption, talk
from bench.measurements.echo.rooms import EchoRoom
from bench.measurements.echo.systems import systems
from bench.tools.clips import synthesise
from bench.tools.stats import machine, markdown, percentile
from bench.tools.word_errors import spoken_words, word_errors
from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, samples_to_ms, silence
from engines.base import AsrItem, AsrModel, VadEngine
from engines.registry import load
from media.files.decode import decode_file
from media.processing.echo import EchoControl
from media.resample import Resampler

ANSWERS = (
    " ".join(
        (
            "The kitchen lights are on now.",
            "It is twenty one degrees in the living room, and the front door is locked.",
            "Your timer for the pasta has four minutes and thirty seconds left.",
        )
    ),
    " ".join(
        (
            "Expect light rain in the morning, with sunshine from noon.",
            "The highest temperature will be eighteen degrees.",
            "There is a gentle breeze from the west.",
        )
    ),
)
PAUSE_MS = 2500
"Silence after each answer, in ms."
FIRST_WORD_MS = 4500
"""The first person interrupts at this time, 3.3 s into the answer, each further person a little
later."""
DELAYS_MS = (0, 40, 120, 300, 400)
"Delays of the echo that are simulated."

LEVELS_DB = (-20, -10, 0, 6)
"Levels of the echo that are simulated, relative to the person's voice."

T60_S = (0.2, 0.4, 0.6)
"Reverberation times that are simulated: the time in which a sound falls by 60 dB."

HARD_ROOMS = (
    EchoRoom(clip=2),
    EchoRoom(level_db=0, clip=4),
    EchoRoom(drift_ppm=50),
    EchoRoom(delay_ms=300, drift_ppm=-100),
    EchoRoom(jump_ms=80),
    EchoRoom(delay_ms=200, jump_ms=-120),
    EchoRoom(delay_ms=700),
    EchoRoom(delay_ms=1500, level_db=0),
)
"""Overdriven loudspeakers, clocks that drift, delays that jump, and delays beyond every library's
search."""
TABLE_HEAD = (
    "system",
    "echo",
    "ERLE, dB",
    "heard itself",
    "person missed",
    "heard itself before",
    "heard after ms, p50 / p95",
    "words wrong, %",
    "CPU, %",
)

Interruption = tuple[Interrupter, str, EchoRun]
"Person, their words, and the result."


@dataclass(slots=True)
class RoomGroup:
    """Group of rooms: with the answer alone, and with a person who interrupts. None stands for
    headphones."""

    name: str
    answer_only: list[EchoRoom | None]
    with_person: list[EchoRoom | None]


@dataclass(slots=True)
class EchoWordErrors:
    """Results of one group of rooms."""

    answer_only: list[EchoRun] = field(default_factory=list)
    interrupted: list[Interruption] = field(default_factory=list)


def groups(*, is_quick: bool) -> Iterator[RoomGroup]:
    for level in LEVELS_DB:
        every = [(delay, t60) for t60 in T60_S for delay in DELAYS_MS]
        scenes = [EchoRoom(d, level, t60, seed=seed) for seed, (d, t60) in enumerate(every)]
        chosen: list[EchoRoom | None] = [*(scenes[::3] if is_quick else scenes)]
        yield RoomGroup(f"{level:+d} dB", chosen, chosen)
    yield RoomGroup("hard", [*HARD_ROOMS], [])
    yield RoomGroup("headphones", [None], [None] * (5 if is_quick else 15))


def answers(voice: str = "en-us") -> Pcm:
    """Returns the assistant's speech at 16 kHz."""
    parts: list[Pcm] = [silence(1000, ASR_RATE_HZ)]
    for text in ANSWERS:
        resampler = Resampler(RATE_HZ, ASR_RATE_HZ)
        pause = silence(PAUSE_MS, ASR_RATE_HZ)
        parts += [resampler.push(synthesise(text, voice)), resampler.flush(), pause]
    return np.concatenate(parts)


def people(data: Path, count: int) -> Iterator[tuple[Interrupter, str]]:
    """Yields commands spread over the data, one per person, with their texts."""
    every = [clip for clip in transcripts(data / "commands") if clip[0].suffix == ".flac"]
    for number, (path, reference) in enumerate(every[:: len(every) // count][:count]):
        at = ms_to_samples(FIRST_WORD_MS + 130 * number, ASR_RATE_HZ)
        yield Interrupter(decode_file(path), at), reference


def hear(
    make: Callable[[], EchoControl], group: RoomGroup, data: Path, vad: VadEngine
) -> EchoWordErrors:
    """Runs every room of the group through a new canceller."""
    voices = answers(), answers("en-us+f3")
    results = EchoWordErrors()
    for number, scene in enumerate(group.answer_only):
        results.answer_only.append(talk(make(), voices[number % 2], scene, vad))
    if group.with_person:
        crowd = people(data, len(group.with_person))
        for scene, (person, reference) in zip(group.with_person, crowd, strict=True):
            run = talk(make(), voices[0], scene, vad, person)
            results.interrupted.append((person, reference, run))
    return results


def words_wrong(model: AsrModel, interruptions: Sequence[Interruption]) -> float:
    """Returns the share of the spoken words that were recognised wrongly or not at all."""
    wrong = total = 0
    for person, reference, run in interruptions:
        words, start, text = spoken_words(reference), interruption(run.starts, person), ""
        if start is not None:
            item = AsrItem(reference, np.concatenate(start.speech), is_final=True)
            text = model.decode([item])[0].text
        wrong += word_errors(words, spoken_words(text))
        total += len(words)
    return wrong / total


def row(name: str, group: RoomGroup, results: EchoWordErrors, model: AsrModel | None) -> list[str]:
    """Returns one row of the table."""
    of = len(results.interrupted)
    found = [(person, interruption(run.starts, person)) for person, _, run in results.interrupted]
    waits = [samples_to_ms(s.detected_at - p.at, ASR_RATE_HZ) for p, s in found if s is not None]
    before = [any(s.at < p.at for s in run.starts) for p, _, run in results.interrupted]
    erle = [run.erle_db for run in results.answer_only]
    return [
        name,
        group.name,
        f"{min(erle):.0f} to {max(erle):.0f}" if group.answer_only != [None] else "-",
        f"{sum(bool(one.starts) for one in results.answer_only)} of {len(results.answer_only)}",
        f"{sum(start is None for _, start in found)} of {of}" if of else "-",
        f"{sum(before)} of {of}" if of else "-",
        f"{percentile(waits, 50):.0f} / {percentile(waits, 95):.0f}" if waits else "-",
        f"{100 * words_wrong(model, results.interrupted):.0f}" if model and of else "-",
        f"{np.mean([one.cpu_percent for one in results.answer_only]):.2f}",
    ]


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.measurements.echo", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--data", type=Path, required=True, help="folder that contains the folder commands/"
    )
    parser.add_argument(
        "--model", type=Path, help="folder of a faster-whisper model that counts the words"
    )
    parser.add_argument("--quick", action="store_true", help="use only a third of the rooms")
    parser.add_argument("--only", nargs="+", choices=sorted(systems()), default=None)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    args = options(argv)
    vad = load("vad", "gated", {})
    model: AsrModel | None = None
    if args.model:
        model = load("asr", "faster_whisper", {"model": str(args.model), "cpu_threads": 1})
    print(machine())
    rows = []
    for name, make in systems().items():
        if args.only is not None and name not in args.only:
            continue
        for group in groups(is_quick=args.quick):
            rows.append(row(name, group, hear(make, group, args.data, vad), model))
            print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    print(markdown(TABLE_HEAD, rows))
    if model is not None:
        model.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
