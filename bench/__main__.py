"""`python -m bench` (`make bench`): every figure of docs/performance.md, one after the other.

Each measurement is a process of its own, so that none is affected by another's load or caches.
`python -m bench voice ...`, `... asr ...`, `... peers ...`, `... capacity ...` and
`... simulate ...` run one of them alone.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec

MEASUREMENTS: Sequence[tuple[str, str, Sequence[str]]] = (
    ("Voice to voice, WebRTC", "bench.voice", ("--transport", "webrtc")),
    ("Voice to voice, WebSocket", "bench.voice", ("--transport", "ws")),
    ("Voice to voice, engines of 0 ms", "bench.voice", ("--stubs", "0,0,0", "--wait", "200")),
    ("Voice to voice, stub engines", "bench.voice", ("--stubs", "50,150,80", "--wait", "200")),
    ("Delay of the jitter buffer", "bench.voice.jitter", ()),
    ("Scheduler of the recognisers", "bench.measurements.scheduler", ()),
    ("Start-up, memory and CPU", "bench.measurements.resources", ()),
    ("Sessions on one core", "bench.capacity", ()),
    ("Accuracy", "bench.measurements.accuracy", ()),
)
"Title, module and its arguments."

ALONE = ("voice", "asr", "peers", "capacity", "simulate")
"""Measurements with arguments of their own; `asr` also needs a corpus, `peers` other systems to
compare with. `simulate` computes."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs all measurements; returns 1 when one failed."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given and given[0] in ALONE:
        command = [sys.executable, "-m", f"bench.{given[0]}", *given[1:]]
        return subprocess.run(command, check=False).returncode
    names = sorted({module.partition(".")[2] for _, module, _ in MEASUREMENTS})
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    options = parser.parse_args(given)
    failed: list[str] = []
    for title, module, rest in MEASUREMENTS:
        if module.partition(".")[2] not in options.only or find_spec(module) is None:
            continue
        print(f"\n## {title}\n", flush=True)
        try:
            if subprocess.run([sys.executable, "-m", module, *rest], check=False).returncode:
                failed.append(title)
        except KeyboardInterrupt:
            return 130
    if failed:
        print(f"\nfailed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
