"""Picture of a run: distribution of the latencies, and the real-time factor. Plain SVG, no
library."""

from collections.abc import Iterator, Sequence
from xml.sax.saxutils import escape

from bench.tools.stats import percentile

WIDTH, HEIGHT = 720, 360
LEFT, RIGHT, TOP, BOTTOM = 60, 40, 70, 50
MARKED = (50, 90, 95, 99)
"Percentiles that get a line."

_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#222;paint-order:stroke;stroke:#fff;stroke-width:3px}"
    ".t{font-size:16px;font-weight:600}"
    ".c{fill:none;stroke:#2563eb;stroke-width:2}.g{stroke:#ddd}.box{fill:#fff}"
    ".m{stroke:#b45309;stroke-dasharray:4 3}"
)


def chart(title: str, latencies_ms: Sequence[float], rtf: float, what: str) -> str:
    """Draws the share of recordings (y) that were done within a latency (x). Returns the SVG."""
    right_ms = nice(max(latencies_ms))
    ordered = sorted(latencies_ms)
    steps = [(0.0, 0.0)]
    for number, value in enumerate(ordered, start=1):
        steps += [(value, steps[-1][1]), (value, number / len(ordered))]
    points = " ".join(f"{_x(ms, right_ms):.1f},{_y(share):.1f}" for ms, share in steps)
    return "\n".join(
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style>",
            f'<rect class="box" width="{WIDTH}" height="{HEIGHT}"/>',
            _text(LEFT, 26, title, "t"),
            _text(LEFT, 46, f"{len(ordered)} recordings, RTF {rtf:.3f}; {what}"),
            *_grid(right_ms),
            f'<polyline class="c" points="{points}"/>',
            *_marks(ordered, right_ms),
            "</svg>\n",
        )
    )


def nice(value: float) -> float:
    """Returns the next of 1, 2 and 5 times a power of ten."""
    step = 1.0
    while step < value:
        for factor in (2, 5, 10):
            if step * factor >= value:
                return step * factor
        step *= 10
    return step


def _grid(right_ms: float) -> Iterator[str]:
    for quarter in range(5):
        y, share = _y(quarter / 4), quarter * 25
        yield f'<line class="g" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        yield _text(LEFT - 8, y + 4, f"{share} %", anchor="end")
    for fifth in range(6):
        at_ms = right_ms * fifth / 5
        yield _text(_x(at_ms, right_ms), HEIGHT - BOTTOM + 20, f"{at_ms:g} ms", anchor="middle")


def _marks(ordered: Sequence[float], right_ms: float) -> Iterator[str]:
    """Draws a line per percentile. Each label has its own height so that none covers another."""
    for row, percent in enumerate(MARKED):
        value = percentile(ordered, percent)
        x, y = _x(value, right_ms), TOP + 14 + 16 * row
        yield f'<line class="m" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
        label, anchor = f"p{percent} {value:.0f} ms", "end" if x > WIDTH / 2 else "start"
        yield _text(x + (-5 if anchor == "end" else 5), y, label, anchor=anchor)


def _x(at_ms: float, right_ms: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * at_ms / right_ms


def _y(share: float) -> float:
    return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)


def _text(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'
    )
