"""Atheris in a process of its own: `python -m tests.fuzz.engine [NAME...] [-- FLAG... FILE...]`.

Coverage guides it, so the modules that a target imports are instrumented; that takes seconds, once
for all targets of a call. Each then runs in a child, because libFuzzer never returns. Arguments
after `--` are for libFuzzer: `-runs=`, `-seed=`, or a file, which alone is then tried.
"""

import argparse
import json
import os
import random
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path

import atheris

from tests.fuzz.mutate import mutated_json
from tests.fuzz.target import Target

PACKAGES = (
    *("core", "media", "engines", "firmware_protocol", "serving", "pipeline", "signaling"),
    *("devices", "web", "server", "wyoming", "aiortc.sdp"),
)

QUICK_PACKAGES = ("tests.fuzz",)
"""For a share of the inputs. So few are hardly guided by coverage, and to instrument everything
takes longer than to try them. libFuzzer stops if nothing is instrumented."""

TIMEOUT_S = 10
"The time limit of one input; the longest take some milliseconds of processor time."

MAX_MEMORY_MB = 500
"A process has 130 MB at the start, so a million inputs that keep 400 bytes each are detected."

INPUT = "input"
"The file with the input that failed, or took too long or too much memory."

BROKEN = 77
"The exit code of a finding; libFuzzer's own are 70 for time and 71 for memory."


def _mutated(data: bytes, max_size: int, seed: int) -> bytes:
    """Returns libFuzzer's own change, or changes one line as JSON."""
    lottery = random.Random(seed)
    lines = data.split(b"\n")
    at = lottery.randrange(len(lines))
    try:
        value = json.loads(lines[at]) if lottery.random() < 0.5 else ...
        if value is not ...:
            changed = json.dumps(mutated_json(lottery, value), ensure_ascii=lottery.random() < 0.5)
            lines[at] = changed.encode(errors="replace")
            return b"\n".join(lines)[:max_size]
    except (ValueError, RecursionError):
        pass  # it is no longer JSON, or is deeper or longer than Python allows
    return bytes(atheris.Mutate(data, max_size))


def _watched(one_input: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Ends the process at once with the failed input: Python's own exit takes seconds under
    Atheris, in which its alarm goes off and hides the finding."""

    def watched(data: bytes) -> None:
        try:
            one_input(data)
        except BaseException:  # noqa: BLE001  whatever it is, it is told
            Path(INPUT).write_bytes(data)
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(BROKEN)

    return watched


def _fuzz(target: Target, flags: list[str]) -> None:
    """Fuzzes in the working directory. Never returns."""
    for folder in ("found", "seeds"):
        Path(folder).mkdir(exist_ok=True)
    for number, seed in enumerate(target.seeds):
        Path(f"seeds/{number:04}").write_bytes(seed[: target.max_bytes])
    limits = [f"-max_len={target.max_bytes}", f"-timeout={TIMEOUT_S}"]
    limits += [f"-rss_limit_mb={MAX_MEMORY_MB}", f"-exact_artifact_path={INPUT}"]
    limits.append("-keep_seed=1")  # decoders in C report no coverage
    if target.words:
        escaped = ("".join(f"\\x{byte:02x}" for byte in word.encode()) for word in target.words)
        Path("words").write_text("".join(f'"{one}"\n' for one in escaped if one), "ascii")
        limits.append("-dict=words")
    if all(flag.startswith("-") for flag in flags):
        flags = [*flags, "found", "seeds"]
    mutator = {"custom_mutator": _mutated} if target.is_json else {}
    atheris.Setup(["fuzz", *limits, *flags], _watched(target.one_input), **mutator)
    atheris.Fuzz()


def _child(target: Target, folder: Path, flags: list[str]) -> int:
    """Returns the process id of a child that fuzzes."""
    if pid := os.fork():
        return pid
    folder.mkdir(parents=True, exist_ok=True)
    os.chdir(folder)
    log = os.open("log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    _fuzz(target, flags)
    raise AssertionError("libFuzzer ends the process")


def _run_all(
    targets: list[Target], folder: Path, flags: list[str], jobs: int, share: int
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yields names and reports, in the order in which the targets end."""
    waiting, running = targets[::-1], dict[int, tuple[str, float]]()
    while waiting or running:
        while waiting and len(running) < jobs:
            target = waiting.pop()
            runs = (
                []
                if any(flag.startswith("-runs=") for flag in flags)
                else [f"-runs={target.few // share}"]
            )
            pid = _child(target, folder / target.name, [*runs, *flags])
            running[pid] = target.name, time.monotonic()
        pid, status, used = os.wait4(-1, 0)
        name, began_s = running.pop(pid)
        report = {
            "exit": os.waitstatus_to_exitcode(status),
            "took_s": round(time.monotonic() - began_s, 1),
            "peak_mb": used.ru_maxrss // 1024,
        }
        (folder / name / "report.json").write_text(json.dumps(report), "utf-8")
        yield name, report


def _asked(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="targets; none: all")
    parser.add_argument("--folder", type=Path, default=Path("var/fuzz"), help="of logs and corpora")
    parser.add_argument("--jobs", type=int, default=1, help="targets at a time")
    parser.add_argument(
        "--share", type=int, default=1, help="divides the number of inputs where no -runs= is given"
    )
    parser.add_argument("--of", default="tests.fuzz.targets", help="the module with TARGETS")
    return parser.parse_args(arguments)


def main() -> None:
    end = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    asked, flags = _asked(sys.argv[1:end]), sys.argv[end + 1 :]
    packages = PACKAGES if asked.share == 1 else QUICK_PACKAGES
    with atheris.instrument_imports(include=[*packages]):
        targets: dict[str, Target] = {one.name: one for one in import_module(asked.of).TARGETS}
    wanted = [targets[name] for name in asked.names or targets]
    for name, report in _run_all(wanted, asked.folder.resolve(), flags, asked.jobs, asked.share):
        print(name, report, flush=True)


if __name__ == "__main__":
    main()
