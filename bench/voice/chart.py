"""SVG chart of a run: the stages of a median turn, and the distribution of the latencies."""

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from bench.asr.report.chart import nice
from bench.client.turn import StageTimes
from bench.talk.output import STAGE_NAMES
from bench.tools.stats import percentile

WIDTH, LEFT, RIGHT = 720, 130, 40
TOP, ROW, BAR = 80, 26, 16
PLOT = 150
"Height of the distribution. All sizes are in pixels."

# Classes: t title, g grid, s stage, e endpoint wait, v voice to voice, p stage that began early,
# c curve, m percentile.
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222;paint-order:stroke;stroke:#fff;stroke-width:3px}"
    ".t{font-size:16px;font-weight:600}.box{fill:#fff}.g{stroke:#ddd}"
    ".s{fill:#93c5fd}.e{fill:#d4d4d8}.v{fill:#2563eb}"
    ".p{fill:#e9d5ff;stroke:#7e22ce;stroke-dasharray:3 2}"
    ".c{fill:none;stroke:#2563eb;stroke-width:2}.m{stroke:#b45309;stroke-dasharray:4 3}"
)

VOICE = "voice to voice"
WAIT = "endpoint_wait"
"Stage that is drawn in grey, because the server only waits in it."


def chart(title: str, note: str, waterfall: Sequence[StageTimes], times_ms: Sequence[float]) -> str:
    """Draws the picture and returns the SVG.

    waterfall: the server's stages of a median turn; 0 ms is the end of speech.
    times_ms: response latencies at the client, at least one.
    """
    own = StageTimes(VOICE, 0.0, percentile(times_ms, 50))
    rows = [*waterfall, own]
    right_ms = nice(max(*times_ms, *(stage.end_ms for stage in rows)))
    axis = _Axis(min(0.0, *(stage.start_ms for stage in rows)), right_ms)
    plot_top = TOP + len(rows) * ROW + 46
    height = plot_top + PLOT + 40
    lines = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
        f"<title>{escape(title)}</title><style>{_STYLE}</style>",
        f'<rect class="box" width="{WIDTH}" height="{height}"/>',
        _text(20, 28, title, "t"),
        _text(20, 50, note),
        *_ticks(axis, TOP - 8, plot_top + PLOT),
        *_bars(axis, rows),
        *_distribution(axis, sorted(times_ms), plot_top),
        "</svg>\n",
    )
    return "\n".join(lines)


class _Axis:
    """Horizontal axis in milliseconds."""

    def __init__(self, begin_ms: float, end_ms: float) -> None:
        self.begin_ms, self.end_ms = begin_ms, end_ms

    def x(self, at_ms: float) -> float:
        share = (at_ms - self.begin_ms) / (self.end_ms - self.begin_ms)
        return LEFT + (WIDTH - LEFT - RIGHT) * share


def _ticks(axis: _Axis, top: float, bottom: float) -> Iterator[str]:
    for fifth in range(6):
        at_ms = axis.end_ms * fifth / 5
        x = axis.x(at_ms)
        yield f'<line class="g" x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}"/>'
        yield _text(x, bottom + 20, f"{at_ms:g} ms", anchor="middle")


def _bars(axis: _Axis, rows: Sequence[StageTimes]) -> Iterator[str]:
    for number, stage in enumerate(rows):
        y = TOP + number * ROW
        left, right = axis.x(stage.start_ms), axis.x(stage.end_ms)
        kind = {VOICE: "v", WAIT: "e"}.get(stage.name, "p" if stage.is_speculative else "s")
        width = max(1.0, right - left)
        yield f'<rect class="{kind}" x="{left:.1f}" y="{y}" width="{width:.1f}" height="{BAR}"/>'
        yield _text(LEFT - 8, y + 13, STAGE_NAMES.get(stage.name, stage.name), anchor="end")
        inside = right > WIDTH * 0.8  # the label would not fit to the right of the bar
        label = f"{stage.took_ms:.0f} ms{', begun early' if stage.is_speculative else ''}"
        yield _text(
            right + (-5 if inside else 5), y + 13, label, anchor="end" if inside else "start"
        )


def _distribution(axis: _Axis, ordered: Sequence[float], top: float) -> Iterator[str]:
    """Draws the share of turns (y) answered within a time (x), and two percentiles."""
    yield _text(20, top - 8, "turns answered within")
    for half in range(3):
        y = top + PLOT * (1 - half / 2)
        yield f'<line class="g" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(LEFT - 8, y + 4, f"{50 * half} %", anchor="end")
    steps = [(0.0, 0.0)]
    for number, value in enumerate(ordered, start=1):
        steps += [(value, steps[-1][1]), (value, number / len(ordered))]
    points = " ".join(f"{axis.x(ms):.1f},{top + PLOT * (1 - share):.1f}" for ms, share in steps)
    yield f'<polyline class="c" points="{points}"/>'
    for row, percent in enumerate((50, 95)):
        value = percentile(ordered, percent)
        x = axis.x(value)
        yield f'<line class="m" x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{top + PLOT}"/>'
        inside = x > WIDTH / 2
        label, anchor = f"p{percent} {value:.0f} ms", "end" if inside else "start"
        yield _text(x + (-5 if inside else 5), top + 14 + 16 * row, label, anchor=anchor)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )
