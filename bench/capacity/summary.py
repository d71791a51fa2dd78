"""Tables of the results."""

from collections.abc import Mapping, Sequence
from statistics import median

from bench.capacity.one_run import CapacityRun
from bench.tools.stats import markdown, percentile

CapacityRuns = Mapping[str, Mapping[int, Sequence[CapacityRun]]]
"System -> number of sessions -> one run per round."


def table(found: CapacityRuns, baseline: str) -> str:
    """Returns a row for each system and number of sessions, compared with the system `baseline`."""
    with_intervals = any(run.errors_ms for run in _all(found))
    head = ["system", "sessions", "% of a core for each", f"of {baseline}", "audio received, %"]
    head += ["interval error p99, ms", "p50"] if with_intervals else []
    head += ["server waited for its core, %", "load's lag p99, ms", "errors"]
    rows = []
    for name, by_sessions in found.items():
        for sessions, runs in by_sessions.items():
            if not runs:
                rows.append([name, str(sessions), "not measured", *("-" for _ in head[3:])])
                continue
            own_percent, others = median(run.cpu_percent for run in runs), found[baseline][sessions]
            row = [name, str(sessions), _spread([run.cpu_percent for run in runs], 2)]
            row += [
                f"{own_percent / median(run.cpu_percent for run in others):.2f} x"
                if others
                else "-"
            ]
            row += [f"{median(run.received_percent for run in runs):.0f}"]
            if with_intervals:
                row += [_spread([percentile(run.errors_ms, 99) for run in runs], 1)]
                row += [f"{median(percentile(run.errors_ms, 50) for run in runs):.1f}"]
            row += [f"{median(run.waited_percent for run in runs):.0f}"]
            row += [_spread([percentile(run.window.lags_ms, 99) for run in runs], 1)]
            row += [str(sum(run.refusals for run in runs))]
            rows.append(row)
    return markdown(head, rows)


def extrapolated(found: CapacityRuns) -> str:
    """Returns the sessions of a full core, extrapolated from the largest measured number."""
    measured = [[n for n, runs in by.items() if runs] for by in found.values()]
    most = max(sessions for numbers in measured for sessions in numbers)
    parts = [
        f"{name} {100 / median(run.cpu_percent for run in by_sessions[most]):.0f}"
        for name, by_sessions in found.items()
        if by_sessions.get(most)
    ]
    return f"Sessions on a full core, extrapolated from {most}, not measured: {', '.join(parts)}."


def _spread(values: Sequence[float], digits: int) -> str:
    """Returns median (smallest-largest)."""
    shown = [f"{value:.{digits}f}" for value in (median(values), min(values), max(values))]
    return f"{shown[0]} ({shown[1]}-{shown[2]})"


def _all(found: CapacityRuns) -> list[CapacityRun]:
    return [run for by in found.values() for runs in by.values() for run in runs]
