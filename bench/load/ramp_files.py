"""The files and the table of a ramp: its settings, every request, each second, and a chart."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean, pstdev
from xml.sax.saxutils import escape

import msgspec

from bench.asr.report.chart import nice
from bench.load.ramp import RampAnswer
from bench.tools.stats import markdown, percentile

DETAILS = (
    "request",
    "rate_per_s",
    "began_s",
    "status",
    "first_sound_ms",
    "took_ms",
    "sound_s",
    "gap_ms",
)
"Columns of detailed_results.csv. `status` is `ok`, or what went wrong."

SECONDS = (
    "second",
    "requests",
    "success_percent",
    "mean_ms",
    "min_ms",
    "max_ms",
    "std_ms",
    "p95_ms",
)
"""Columns of time_series_metrics.csv: of the requests that began in this second of the ramp. The
times are those to the first sound, of the answered ones."""


def write_files(
    folder: Path, settings: Mapping[str, object], answers: Sequence[RampAnswer]
) -> None:
    """Writes config.json, both CSV files and ramp.svg. Blocking."""
    folder.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(settings))
    (folder / "config.json").write_bytes(encoded + b"\n")
    details = (_detail(number, one) for number, one in enumerate(answers))
    _write_csv(folder / "detailed_results.csv", DETAILS, details)
    _write_csv(folder / "time_series_metrics.csv", SECONDS, _seconds(answers))
    (folder / "ramp.svg").write_text(chart(answers), encoding="utf-8")


def rate_table(answers: Iterable[RampAnswer]) -> str:
    """Returns a Markdown table with a row for each rate."""
    head = (
        "requests/s",
        "sent",
        "answered",
        "errors",
        "first sound p50 ms",
        "p95 ms",
        "gap p95 ms",
        "refused after ms, longest",
    )
    rows = []
    for rate, group in groupby(answers, lambda one: one.rate_per_s):
        some = [one.answer for one in group]
        first_ms = [one.first_ms for one in some if not one.error and one.first_ms is not None]
        gaps_ms = [one.gap_ms for one in some if not one.error]
        refused_ms = [one.took_ms for one in some if one.error in ("429", "503")]
        errors = sorted({one.error for one in some if one.error})
        counts = (f"{sum(one.error == error for one in some)} x {error}" for error in errors)
        rows.append(
            (
                f"{rate:g}",
                str(len(some)),
                str(len(gaps_ms)),
                ", ".join(counts) or "0",
                _percentile(first_ms, 50),
                _percentile(first_ms, 95),
                _percentile(gaps_ms, 95),
                _percentile(refused_ms, 100),
            )
        )
    return markdown(head, rows)


def _detail(number: int, one: RampAnswer) -> tuple[object, ...]:
    answer = one.answer
    return (
        number,
        f"{one.rate_per_s:g}",
        f"{one.began_s:.3f}",
        answer.error or "ok",
        "" if answer.first_ms is None else f"{answer.first_ms:.1f}",
        f"{answer.took_ms:.1f}",
        f"{answer.sound_s:.3f}",
        f"{answer.gap_ms:.1f}",
    )


def _seconds(answers: Iterable[RampAnswer]) -> Iterable[tuple[object, ...]]:
    for second, group in groupby(answers, lambda one: int(one.began_s)):
        some = [one.answer for one in group]
        good = [one for one in some if not one.error]
        times_ms = [one.first_ms for one in good if one.first_ms is not None]
        figures = (
            (fmean(times_ms), min(times_ms), max(times_ms), pstdev(times_ms))
            if times_ms
            else (None, None, None, None)
        )
        percent = 100 * len(good) / len(some)
        p95 = percentile(times_ms, 95) if times_ms else None
        shown = ("" if value is None else f"{value:.1f}" for value in (*figures, p95))
        yield (second, len(some), f"{percent:.1f}", *shown)


def _write_csv(path: Path, head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows(rows)


def _percentile(values: Sequence[float], percent: float) -> str:
    return f"{percentile(values, percent):.1f}" if values else "-"


WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 720, 360, 60, 60, 50
"Sizes of the chart in pixels."

_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222}.t{font-size:16px;font-weight:600}"
    ".box{fill:#fff}.g{stroke:#ddd}.ok{fill:#2563eb}.bad{fill:#b91c1c}"
    ".r{fill:none;stroke:#b45309;stroke-width:2}"
)


def chart(answers: Sequence[RampAnswer]) -> str:
    """Returns an SVG: a dot for each request at its time to the first sound, red on the lower edge
    if it failed, and the rate as a line."""
    right_s = nice(max((one.began_s for one in answers), default=1.0) or 1.0)
    top_ms = nice(max((one.answer.first_ms or 0.0 for one in answers), default=1.0) or 1.0)
    top_rate = max((one.rate_per_s for one in answers), default=1.0)

    def at(seconds: float, share: float) -> tuple[float, float]:
        x = LEFT + (WIDTH - 2 * LEFT) * seconds / right_s
        return round(x, 1), round(HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * share, 1)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        f"<title>First sound of each request</title><style>{_STYLE}</style>",
        f'<rect class="box" width="{WIDTH}" height="{HEIGHT}"/>',
        _text(LEFT, 26, "First sound of each request (dots), and requests per second (line)", "t"),
        _text(LEFT, 46, "red: not answered"),
    ]
    for half in range(3):
        x, y = at(right_s * half / 2, half / 2)
        lines += [
            f'<line class="g" x1="{LEFT}" x2="{WIDTH - LEFT}" y1="{y}" y2="{y}"/>',
            _text(LEFT - 8, y + 4, f"{top_ms * half / 2:g} ms", anchor="end"),
            _text(WIDTH - LEFT + 8, y + 4, f"{top_rate * half / 2:g}/s"),
            _text(x, HEIGHT - BOTTOM + 20, f"{right_s * half / 2:g} s", anchor="middle"),
        ]
    steps = (at(one.began_s, one.rate_per_s / top_rate) for one in answers)
    lines.append(f'<polyline class="r" points="{" ".join(f"{x},{y}" for x, y in steps)}"/>')
    for one in answers:
        first_ms = None if one.answer.error else one.answer.first_ms
        x, y = at(one.began_s, 0.0 if first_ms is None else first_ms / top_ms)
        kind = "bad" if one.answer.error else "ok"
        lines.append(f'<circle class="{kind}" cx="{x}" cy="{y}" r="3"/>')
    return "\n".join((*lines, "</svg>\n"))


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    shown = escape(text)
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{shown}</text>'
