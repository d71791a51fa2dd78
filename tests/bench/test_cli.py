"""`earshot bench` without the extra `bench`: only the commands that need it fail."""

import sys
from subprocess import CompletedProcess, run

import pytest

from tests.shared import ROOT

pytestmark = pytest.mark.live

WITHOUT = (
    "import sys; sys.modules['{0}'] = None; from server.__main__ import main; sys.exit(main())"
)


def bench(missing: str, *arguments: str) -> tuple[int, str]:
    """Runs `earshot bench` without this package; returns its exit code and error message."""
    done = run_without(missing, "bench", *arguments)
    return done.returncode, done.stderr


def run_without(missing: str, *arguments: str) -> CompletedProcess[str]:
    """Runs `earshot` as if this package were not installed."""
    return run(
        [sys.executable, "-c", WITHOUT.format(missing), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("missing", ["kaldialign", "whisper_normalizer"])
def test_the_error_of_bench_asr_names_the_missing_extra(missing: str) -> None:
    code, output = bench(missing, "asr", "corpus", "--streaming", "ws", "--num-tasks", "2")
    assert code == 2
    assert f"needs the package {missing}: `earshot extras add bench`" in output


@pytest.mark.parametrize("missing", ["kaldialign", "whisper_normalizer"])
def test_help_works_without_the_extra(missing: str) -> None:
    shown = run_without(missing, "bench", "asr", "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "--num-tasks" in shown.stdout


def test_bench_voice_needs_no_extra() -> None:
    code, output = bench("kaldialign", "voice", "--stubs", "0,0,0", "--url", "http://127.0.0.1:1")
    assert (code, output) == (2, "earshot: --url and --stubs cannot be used together\n")
