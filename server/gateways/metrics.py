"""Metrics of all gateways in one answer: counters and histograms are added up, gauges get the label
`gateway`.

All gateways run the same code, so equal series have equal text. Nothing needs to be parsed but the
value at the end of a line.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

SUMMED = ("counter", "histogram")
"Types whose values are added up."

CREATED = "_created"
"Ending of the gauges that say when a counter began. The earliest one counts."

ENDED_FILE = "ended.prom"
"""File with the counters of gateways that have ended after draining. Without it the sums would
fall, which Prometheus takes for a new beginning."""


def merged(texts: Mapping[str, str], ended: str = "") -> str:
    """Returns the metrics of several gateways as one text in Prometheus' format.

    `texts`: name of a gateway -> its metrics. `ended`: counters of ended gateways.
    """
    families: dict[str, _Family] = {}
    for gateway, text in (*texts.items(), ("", ended)):
        family = None
        for line in text.splitlines():
            if line.startswith("# HELP "):
                name = line.split(" ", 3)[2]
                family = families.setdefault(name, _Family(name))
                family.help = line
            elif line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ", 3)
                family = families.setdefault(name, _Family(name))
                family.kind = kind
            elif family is not None and line:
                family.add(line, gateway)
    return "".join(line + "\n" for family in families.values() for line in family.lines())


def counters(text: str) -> str:
    """Returns only what is added up: what remains of a gateway that ends."""
    kept: list[str] = []
    head: list[str] = []
    for line in text.splitlines():
        if line.startswith("# HELP "):
            head = [line]
        elif line.startswith("# TYPE "):
            head.append(line)
            if line.rpartition(" ")[2] in SUMMED:
                kept += head
                head = []
        elif not head:
            kept.append(line)
    return "".join(line + "\n" for line in kept)


def keep_ended(folder: Path, text: str) -> None:
    """Adds the counters of a gateway that ends to those of the earlier ones. Gateways end one
    after the other, or all together with the server."""
    file = folder / ENDED_FILE
    partial = file.with_suffix(".new")
    with suppress(OSError):  # the folder is gone: the whole server ends
        partial.write_text(merged({"": counters(text)}, read_ended(folder)), encoding="utf-8")
        partial.replace(file)


def read_ended(folder: Path) -> str:
    """Returns the counters of ended gateways; empty if none has ended."""
    with suppress(OSError):
        return (folder / ENDED_FILE).read_text(encoding="utf-8")
    return ""


class _Family:
    """The series of one metric."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.help, self.kind = "", "untyped"
        self._values: dict[str, float] = {}

    def add(self, line: str, gateway: str) -> None:
        """Adds one series. `gateway`: empty for ended ones."""
        series, _, text = line.rpartition(" ")
        value = float(text)
        if self.kind in SUMMED:
            self._values[series] = self._values.get(series, 0.0) + value
        elif self._name.endswith(CREATED):
            self._values[series] = min(value, self._values.get(series, value))
        else:
            self._values[_labelled(series, gateway)] = value

    def lines(self) -> Iterable[str]:
        if not self._values:
            return
        if self.help:
            yield self.help
        yield f"# TYPE {self._name} {self.kind}"
        for series, value in self._values.items():
            yield f"{series} {value!r}"


def _labelled(series: str, gateway: str) -> str:
    """Returns the series with the label `gateway`."""
    name, brace, labels = series.partition("{")
    own = f'gateway="{gateway}"'
    return f"{name}{{{own},{labels}" if brace else f"{name}{{{own}}}"
