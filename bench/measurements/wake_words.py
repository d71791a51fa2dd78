"""Measures how often each wake word is missed, and how often it is detected where nobody said it.

    python -m bench.measurements.wake_words [--data FOLDER] [--clips FOLDER ...]

The engine `micro` searches for all words at once, with the thresholds of its training. Recordings
of a word are those in `wakeword-clips` of `--data` and in `--clips` whose names begin with it
(`okay_nabu_1.wav`), and clips of eSpeak's voices, which are named as synthetic. A false wake is a
word detected in any other recording. Each recording is played by itself, in a quiet room.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp
from pathlib import Path

import numpy as np

from bench.client.microphone import RATE_HZ
from bench.measurements.material.noisy_clips import in_quiet_room
from bench.tools.clips import synthesise
from bench.tools.stats import markdown
from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms, silence
from core.errors import EarshotError
from engines.base.wake import WakeWordEngine
from engines.registry import load
from media.files.decode import decode_file
from media.resample import Resampler

WORD_CLIPS = "wakeword-clips"
SUFFIXES = {".flac", ".wav", ".mp3", ".ogg", ".opus"}
OTHER = {
    "speech": "speech",
    "speakers": "speech",
    "vad": "speech",
    "real-commands": "commands of people",
    "commands": "commands (synthetic)",
    "noise": "noise",
    "music": "music",
    WORD_CLIPS: "other wake words",
}
"Folders of `--data` for false wakes, by the kind of sound."
REPEATED = "long"
"Folder of recordings that are joined from others: nothing is counted twice."

VOICES = tuple(
    f"{accent}{variant}"
    for accent in ("en-us", "en-gb", "en-gb-scotland")
    for variant in ("", "+f2", "+f3", "+m3", "+m7")
)
"eSpeak's voices for the synthetic clips."

BEFORE_MS, AFTER_MS = 1000, 1000
"Quiet room around a recording: the network needs some sound before, and reports a word late."

CONFIDENCE = 0.95


@dataclass(slots=True)
class WordCounts:
    """Recordings of one word, and where it was detected."""

    clips: int = 0
    detected: int = 0
    "Number of recordings of the word in which the word was detected."
    others: int = 0
    "Number of these recordings in which another word was detected, too."


@dataclass(slots=True)
class WakeReport:
    """Counts over recordings."""

    recorded: dict[str, WordCounts] = field(default_factory=dict[str, WordCounts])
    false_wakes: Counter[tuple[str, str]] = field(default_factory=Counter[tuple[str, str]])
    "False wakes by word and kind of sound."
    seconds: dict[tuple[str, str], float] = field(default_factory=lambda: defaultdict(float))
    "Length of the sound in which the word was not said, by word and kind."


def detected_words(engine: WakeWordEngine, pcm: Pcm) -> list[str]:
    """Returns the words that the engine detects in a recording, each as often as it is reported."""
    names = [word.name for word in engine.words]
    quiet = (silence(BEFORE_MS, ASR_RATE_HZ), silence(AFTER_MS, ASR_RATE_HZ))
    detected = engine.open(names).push(in_quiet_room(np.concatenate([quiet[0], pcm, quiet[1]])))
    return [detection.name for detection in detected]


def word_of(name: str, words: Sequence[str]) -> str | None:
    """Returns the wake word with which a file's name begins; None for other recordings."""
    return next((word for word in words if name.startswith(word)), None)


def count_word(counts: dict[str, WordCounts], word: str, detected: Sequence[str]) -> None:
    """Counts a recording of `word`."""
    found = counts.setdefault(word, WordCounts())
    found.clips += 1
    found.detected += word in detected
    found.others += any(name != word for name in detected)


def upper_bound(events: int) -> float:
    """Returns the mean number of events that `CONFIDENCE` exceeds, where so many were counted
    (Poisson): 3.0 for none."""
    low, high = float(events), 2.0 * events + 10
    while high - low > 1e-6:
        middle = (low + high) / 2
        term: float = exp(-middle)
        at_most = term
        for number in range(1, events + 1):
            term *= middle / number
            at_most += term
        if at_most > 1 - CONFIDENCE:
            low = middle
        else:
            high = middle
    return high


def recordings(folder: Path) -> list[Path]:
    """Returns the recordings below a folder."""
    found = sorted(path for path in folder.rglob("*") if path.suffix in SUFFIXES)
    return [path for path in found if REPEATED not in path.parts]


def count_recordings(engine: WakeWordEngine, data: Path, clips: Sequence[Path]) -> WakeReport:
    """Counts the words in the recordings of `data` and in the further folders `clips`."""
    report, words = WakeReport(), [word.name for word in engine.words]
    folders = [(data / name, kind) for name, kind in OTHER.items()]
    folders += [(folder, OTHER[WORD_CLIPS]) for folder in clips]
    for folder, kind in folders:
        for path in recordings(folder):
            pcm = decode_file(path)
            detected = detected_words(engine, pcm)
            said = word_of(path.name, words) if kind == OTHER[WORD_CLIPS] else None
            if said is not None:
                count_word(report.recorded, said, detected)
            for word in words:
                if word != said:
                    report.false_wakes[word, kind] += detected.count(word)
                    report.seconds[word, kind] += samples_to_ms(len(pcm), ASR_RATE_HZ) / 1000
    return report


def count_synthetic(engine: WakeWordEngine) -> dict[str, WordCounts]:
    """Counts the words in clips of eSpeak's voices. Raises EngineMissing."""
    counts: dict[str, WordCounts] = {}
    for word in engine.words:
        for voice in VOICES:
            detected = detected_words(engine, _synthetic(word.phrase.lower(), voice))
            count_word(counts, word.name, detected)
    return counts


def _synthetic(text: str, voice: str) -> Pcm:
    resampler = Resampler(RATE_HZ, ASR_RATE_HZ)
    return np.concatenate([resampler.push(synthesise(text, voice)), resampler.flush()])


def missed_table(title: str, counts: Mapping[str, WordCounts]) -> str:
    """Returns the table of missed words."""
    rows = [
        [word, f"{count.clips}", f"{count.clips - count.detected}", f"{count.others}"]
        for word, count in sorted(counts.items())
    ]
    return markdown([title, "clips", "missed", "another word woke too"], rows)


def false_table(report: WakeReport) -> str:
    """Returns the table of false wakes: counts by kind of sound, then their rate."""
    kinds = list(dict.fromkeys(OTHER.values()))
    words = sorted({word for word, _ in report.seconds})
    rows = []
    for word in words:
        counts = [report.false_wakes[word, kind] for kind in kinds]
        hours = sum(report.seconds[word, kind] for kind in kinds) / 3600
        rate = f"{sum(counts) / hours:.1f} (at most {upper_bound(sum(counts)) / hours:.1f})"
        rows.append([word, *(f"{count}" for count in counts), f"{hours:.2f}", rate])
    lengths_s = [max(report.seconds[word, kind] for word in words) for kind in kinds]
    head = [f"{kind}, {length_s:.0f} s" for kind, length_s in zip(kinds, lengths_s, strict=True)]
    return markdown(["false wakes", *head, "hours", "an hour"], rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the measurement and prints it; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.measurements.wake_words", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--clips",
        type=Path,
        action="append",
        default=[],
        help="folder of further recordings of wake words, named WORD_*; may be repeated",
    )
    args = parser.parse_args(argv)
    try:
        engine: WakeWordEngine = load("wake", "micro", {})
        report = count_recordings(engine, args.data, args.clips)
        synthetic = count_synthetic(engine)
    except (EarshotError, OSError) as error:
        print(f"bench.measurements.wake_words: {error}", file=sys.stderr)
        return 5
    recorded = missed_table("recorded", report.recorded)
    print(recorded, missed_table("synthetic (eSpeak)", synthetic), false_table(report), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
