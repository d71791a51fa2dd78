"""Summary of a run: a table of medians and ranges, and the same values for JSON."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from statistics import median

from bench.client.conversation import TurnReport
from bench.client.turn import StageTimes
from bench.talk.output import STAGE_NAMES
from bench.tools.stats import markdown, percentile, spread
from bench.voice.measure import VoiceTurn

HEAD = ("ms", "p50", "p95", "min", "max", "turns")


def answered_reports(found: Iterable[VoiceTurn]) -> list[TurnReport]:
    """Returns the reports of the answered turns."""
    return [turn.report for turn in found if turn.report.status == "answered"]


def voice_to_voice(found: Iterable[VoiceTurn]) -> list[float]:
    """Returns the response latencies in ms, without answers before the end of speech."""
    return [ms for ms in _known(r.voice_to_voice_ms for r in answered_reports(found)) if ms >= 0]


def count_early_answers(found: Iterable[VoiceTurn]) -> int:
    """Counts the turns that were answered too early, because a pause was taken for their end."""
    return sum(ms < 0 for ms in _known(r.voice_to_voice_ms for r in answered_reports(found)))


def stages(found: Sequence[VoiceTurn]) -> Mapping[str, list[StageTimes]]:
    """Returns the stages by name, in the order of the first turn that has them."""
    by_name: dict[str, list[StageTimes]] = {}
    for report in answered_reports(found):
        for stage in report.stages:
            by_name.setdefault(stage.name, []).append(stage)
    return by_name


def median_stages(found: Sequence[VoiceTurn]) -> list[StageTimes]:
    """Returns each stage, from the median of its starts to the median of its ends."""
    return [
        StageTimes(
            name,
            median(s.start_ms for s in each),
            median(s.end_ms for s in each),
            is_speculative=sum(s.is_speculative for s in each) * 2 > len(each),
        )
        for name, each in stages(found).items()
    ]


def table(found: Sequence[VoiceTurn], path_ms: Sequence[float]) -> str:
    """Returns a Markdown table of the answered turns, and the number of the others.

    path_ms: latencies of the client without a server, one way.
    """
    reports = answered_reports(found)
    rows = [
        ["**voice to voice, at the client**", *spread(voice_to_voice(found))],
        ["transcript, at the client", *spread(_known(r.transcript_ms for r in reports))],
        ["first words after speech begins", *spread(_known(r.first_words_ms for r in reports))],
        ["response latency, by the server", *spread(_known(r.server_ms for r in reports))],
    ]
    early = {stage.name for stage in median_stages(found) if stage.is_speculative}
    for name, each in stages(found).items():
        title = f"- {STAGE_NAMES.get(name, name)}{', begun early' if name in early else ''}"
        rows.append([title, *spread([s.took_ms for s in each])])
    rows.append(["mouth to ear without a server, one way", *spread(path_ms)])
    lines = [markdown(HEAD, [row for row in rows if row[-1] != "0"])]
    if len(reports) < len(found):
        lines.append(f"\n{len(found) - len(reports)} of {len(found)} turns were not answered.")
    if early_count := count_early_answers(found):
        lines.append(f"\n{early_count} of {len(found)} turns were answered before they were over.")
    return "\n".join(lines)


def summary(found: Sequence[VoiceTurn], path_ms: Sequence[float]) -> dict[str, object]:
    """Returns the values of the table and every turn, for JSON. path_ms: as for `table`."""
    return {
        "turns": len(found),
        "answered": len(answered_reports(found)),
        "too_early": count_early_answers(found),
        "voice_to_voice_ms": _spread(voice_to_voice(found)),
        "server_ms": _spread(_known(report.server_ms for report in answered_reports(found))),
        "path_one_way_ms": _spread(path_ms),
        "stages": [
            {"stage": name, **(_spread([s.took_ms for s in each]) or {})}
            for name, each in stages(found).items()
        ],
        "waterfall": [asdict(stage) for stage in median_stages(found)],
        "each": [_turn(turn) for turn in found],
    }


RoundsByDoor = Mapping[str, Sequence[Sequence[VoiceTurn]]]
"Turns of each door, round by round; the first door is what the others are compared with."


def compared(found: RoundsByDoor) -> list[dict[str, object]]:
    """Returns the voice to voice latency of each door, and its distance to the first door's: of
    the medians of all turns, and the least and the greatest of the rounds."""
    rows: list[dict[str, object]] = []
    first = next(iter(found.values()))
    for door, rounds in found.items():
        times_ms = voice_to_voice(turn for each in rounds for turn in each)
        row: dict[str, object] = {
            "door": door,
            "turns": sum(len(each) for each in rounds),
            "voice_to_voice_ms": _spread(times_ms),
        }
        pairs = [
            (voice_to_voice(own), voice_to_voice(base))
            for own, base in zip(rounds, first, strict=True)
        ]
        differences = [median(own) - median(base) for own, base in pairs if own and base]
        base_ms = voice_to_voice(turn for each in first for turn in each)
        if rounds is not first and times_ms and base_ms and differences:
            row["difference_ms"] = {
                "p50": round(median(times_ms) - median(base_ms), 1),
                "min": round(min(differences), 1),
                "max": round(max(differences), 1),
            }
        rows.append(row)
    return rows


def comparison(found: RoundsByDoor) -> str:
    """Returns what `compared` returns as a Markdown table."""
    base = next(iter(found))
    head = ("voice to voice, ms", *HEAD[1:], f"beside {base}", "rounds")
    rows = []
    for row, (door, rounds) in zip(compared(found), found.items(), strict=True):
        difference = row.get("difference_ms")
        told = ["", ""]
        if isinstance(difference, dict):
            told = [f"{difference['p50']:+}", f"{difference['min']:+} to {difference['max']:+}"]
        times_ms = voice_to_voice(turn for each in rounds for turn in each)
        rows.append([door, *spread(times_ms), *told])
    return markdown(head, rows)


def _turn(turn: VoiceTurn) -> dict[str, object]:
    fields: dict[str, object] = asdict(turn.report)
    del fields["audio"]
    return {"client": turn.client, "turn": turn.turn, "clip": turn.clip, **fields}


def _spread(values: Sequence[float]) -> dict[str, float] | None:
    if not values:
        return None
    return {
        "p50": round(percentile(values, 50), 1),
        "p95": round(percentile(values, 95), 1),
        "min": round(min(values), 1),
        "max": round(max(values), 1),
    }


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
