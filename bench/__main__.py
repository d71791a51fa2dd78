"""`python -m bench` (`make bench`): every figure of docs/performance.md, one after the other.

Each measurement is a process of its own, so that none carries another's load or warmth.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec

MEASUREMENTS: Sequence[tuple[str, str, Sequence[str]]] = (
    ("Voice to voice, WebRTC", "bench.v2v", ("--transport", "webrtc")),
    ("Voice to voice, WebSocket", "bench.v2v", ("--transport", "ws")),
    ("Delay of the jitter buffer", "bench.jitter", ()),
    ("Start-up, memory and CPU", "bench.resources", ()),
    ("Accuracy", "bench.accuracy", ()),
)
"Title, module and its arguments."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run them all; 1 when one failed."""
    names = sorted({module.partition(".")[2] for _, module, _ in MEASUREMENTS})
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    options = parser.parse_args(arguments)
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
