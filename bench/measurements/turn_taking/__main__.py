"""Measures turn taking as a curve: turns cut off at a pause, against the time until a turn ends.

    python -m bench.measurements.turn_taking --model FOLDER [--smart-turn smart-turn-v3.2-cpu.onnx]

Recordings of people in `--data` go through whole sessions in virtual time: the server's voice
activity detection, endpointing and turn detection, words by a Whisper model, and engines with set
times for the rest (100 ms for a decode, 150 for the first token, 80 for the first sound).

A pause within a turn is one of 200 ms to 5 s by voice activity detection; it is cut if the turn
was taken for over in it. The delay is the time from the last sample of speech to the end of the
turn. It is measured in the recordings that end with the end of a sentence.
"""

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median

from bench.measurements.material.remembered_results import (
    RememberedResults,
    RememberingDetector,
    RememberingRecogniser,
)
from bench.measurements.turn_taking.clips import ORDERS, SENTENCES, SpokenTurn, spoken_turns
from bench.measurements.turn_taking.operating_points import (
    CUT_SHARES,
    LATENCIES_MS,
    OperatingPoint,
    budget_row,
    curve,
)
from bench.measurements.turn_taking.session import DECODE_S, TurnOutcome, hear
from bench.tools.stats import markdown, percentile
from core.errors import EarshotError
from engines.base import EndOfTurnDetector, VadEngine
from engines.registry import load
from pipeline.shared.settings import TurnDetection
from pipeline.user_turn.speech_detection.endpointing import Eagerness

EAGERNESS: Sequence[Eagerness] = ("high", "auto", "medium", "low")
SILENCES_MS = (500, 300, 800, 1200, 200)
"Waits of `server_vad`, the baseline; the first one is its default."

BASELINE = "server_vad"
WORDS = "words only"
SOUND = "Smart Turn and words"


@dataclass(frozen=True, slots=True)
class MeasuredSetting:
    """All turns with one setting."""

    series: str
    setting: str
    outcomes: Sequence[TurnOutcome]

    @property
    def pauses(self) -> int:
        return sum(len(outcome.turn.pauses) for outcome in self.outcomes)

    @property
    def cut_pauses(self) -> int:
        return sum(outcome.cut_pauses for outcome in self.outcomes)

    def delays_ms(self, kind: str | None = None) -> list[float]:
        """Returns the delays of the true ends, of one kind of turn or of all."""
        timed = [
            outcome
            for outcome in self.outcomes
            if outcome.turn.is_timed and outcome.delay_ms is not None
        ]
        return [
            outcome.delay_ms
            for outcome in timed
            if outcome.delay_ms is not None and kind in (None, outcome.turn.kind)
        ]

    @property
    def point(self) -> OperatingPoint:
        return OperatingPoint(mean(self.delays_ms()), self.cut_pauses / max(1, self.pauses))


def settings(has_sound: bool) -> Iterator[tuple[str, str, TurnDetection]]:
    """Yields series, name and turn detection of each setting."""
    for series in (SOUND, WORDS) if has_sound else (WORDS,):
        for eagerness in EAGERNESS:
            yield series, eagerness, TurnDetection(kind="semantic_vad", eagerness=eagerness)
    for silence_ms in SILENCES_MS:
        yield BASELINE, f"{silence_ms} ms", TurnDetection(silence_ms=silence_ms)


def measure(
    turns: Sequence[SpokenTurn],
    vad: VadEngine,
    recogniser: RememberingRecogniser,
    endpoint: EndOfTurnDetector | None,
) -> Iterator[MeasuredSetting]:
    """Yields the result of each setting."""
    for series, name, detection in settings(endpoint is not None):
        sound = endpoint if series == SOUND else None
        outcomes = [hear(turn, detection, vad, recogniser, sound) for turn in turns]
        yield MeasuredSetting(series, name, outcomes)


def setting_row(measured: MeasuredSetting) -> list[str]:
    """Returns the cells of the table: cuts and what became of them, then delays."""
    outcomes = measured.outcomes
    early = [outcome for outcome in outcomes if outcome.cut_pauses or outcome.other_cuts]
    ends = sum(outcome.cut_pauses + outcome.other_cuts for outcome in early)
    by_kind = [measured.delays_ms(kind) for kind in (ORDERS, SENTENCES)]
    answers_ms = [
        outcome.answer_ms for outcome in outcomes if outcome.turn.is_timed and outcome.answer_ms
    ]
    return [
        measured.series,
        measured.setting,
        f"{measured.cut_pauses} ({100 * measured.point.cut_share:.1f} %)",
        f"{len(early)}",
        f"{sum(outcome.joined for outcome in early)} of {ends}",
        f"{sum(outcome.answers <= 1 for outcome in early)} of {len(early)}",
        f"{sum(outcome.interjections for outcome in early)}",
        *(f"{mean(delays):.0f}" if delays else "-" for delays in by_kind),
        f"{measured.point.delay_ms:.0f}",
        f"{percentile(measured.delays_ms(), 95):.0f}",
        f"{median(answers_ms):.0f}",
    ]


HEAD = (
    "turn detection",
    "setting",
    "pauses cut",
    "turns cut",
    "ended early, then joined",
    "turns cut, answered once",
    "answer began in between",
    "delay: orders",
    "read sentences",
    "all",
    "p95",
    "first sound, median",
)


def report(measured: Sequence[MeasuredSetting]) -> Iterator[str]:
    """Yields the tables and the curve."""
    first = measured[0]
    turns = [outcome.turn for outcome in first.outcomes]
    counts = ", ".join(
        f"{sum(turn.kind == kind for turn in turns)} {kind}" for kind in (ORDERS, SENTENCES)
    )
    timed = sum(turn.is_timed for turn in turns)
    yield f"{counts}; {first.pauses} pauses of 200 ms to 5 s; {timed} timed ends; times in ms\n"
    yield markdown(HEAD, [setting_row(row) for row in measured])
    series: dict[str, list[OperatingPoint]] = {}
    for row in measured:
        series.setdefault(row.series, []).append(row.point)
    yield ""
    yield budgets(series)
    yield ""
    yield from curve(series)


def budgets(series: Mapping[str, Sequence[OperatingPoint]]) -> str:
    """Returns the table of operating points as eot-bench has it."""
    head = [
        "turn detection",
        *(f"cut at {delay_ms} ms" for delay_ms in LATENCIES_MS),
        *(f"delay at {100 * share:.0f} % cut" for share in CUT_SHARES),
    ]
    return markdown(head, [[name, *budget_row(points)] for name, points in series.items()])


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the measurement and prints it; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.measurements.turn_taking", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--model", required=True, help="folder of the Whisper model for the words")
    parser.add_argument("--smart-turn", help="path of smart-turn-v3.2-cpu.onnx; default: left out")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="take every Nth recording only"
    )
    parser.add_argument(
        "--cache", type=Path, help="file that keeps decodes and judgements for the next run"
    )
    args = parser.parse_args(argv)
    try:
        results = RememberedResults.read(args.cache)
        vad: VadEngine = load("vad", "gated", {})
        recogniser = RememberingRecogniser(
            load("asr", "faster_whisper", {"model": args.model, "cpu_threads": 1}),
            results,
            DECODE_S,
        )
        endpoint = None
        if args.smart_turn:
            smart_turn = load("endpoint", "smart_turn", {"path": args.smart_turn})
            endpoint = RememberingDetector(smart_turn, results)
        turns = list(spoken_turns(args.data, vad))[:: args.every]
        measured: list[MeasuredSetting] = []
        for row in measure(turns, vad, recogniser, endpoint):
            measured.append(row)
            results.write(args.cache)
            print(*setting_row(row), sep="\t", file=sys.stderr, flush=True)
    except (EarshotError, OSError, ValueError) as error:
        print(f"bench.measurements.turn_taking: {error}", file=sys.stderr)
        return 5
    print(*report(measured), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
