"""`earshot bench` where the extra `bench` is not installed: only what needs it is missing."""

import sys
from subprocess import CompletedProcess, run

import pytest

from tests.shared import ROOT

pytestmark = pytest.mark.live

WITHOUT = (
    "import sys; sys.modules['{0}'] = None; from server.__main__ import main; sys.exit(main())"
)


def bench(missing: str, *arguments: str) -> tuple[int, str]:
    """Its exit code and complaint, without this package."""
    done = without(missing, "bench", *arguments)
    return done.returncode, done.stderr


def without(missing: str, *arguments: str) -> CompletedProcess[str]:
    """`earshot` where this package is not installed."""
    return run(
        [sys.executable, "-c", WITHOUT.format(missing), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("missing", ["kaldialign", "whisper_normalizer"])
def test_recordings_need_it_and_say_so(missing: str) -> None:
    code, said = bench(missing, "asr", "corpus", "--streaming", "ws", "--num-tasks", "2")
    assert code == 2
    assert f"needs the package {missing}: `earshot extras add bench`" in said


@pytest.mark.parametrize("missing", ["kaldialign", "whisper_normalizer"])
def test_their_options_are_explained_without_it(missing: str) -> None:
    shown = without(missing, "bench", "asr", "--help")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "--num-tasks" in shown.stdout


def test_a_conversation_does_not() -> None:
    code, said = bench("kaldialign", "voice", "--stubs", "0,0,0", "--url", "http://127.0.0.1:1")
    assert (code, said) == (2, "earshot: --url and --stubs cannot be used together\n")
