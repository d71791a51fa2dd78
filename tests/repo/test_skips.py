"""In CI a skipped test fails, unless CI cannot have what the test needs."""

import os
import sys
from pathlib import Path
from subprocess import run

import pytest

from tests.shared import ROOT

pytestmark = pytest.mark.live

CASES = {
    "present": 'from tests.conftest import require\ndef test_it(): require(True, "Chromium")',
    "absent": 'from tests.conftest import require\ndef test_it(): require(False, "Chromium")',
    "library": 'from pytest import importorskip\nimportorskip("no_such")\ndef test_it(): pass',
    "shared": 'from pytest import skip\ndef test_it(): skip("needs ../shared/data/commands")',
}


@pytest.mark.parametrize(
    ("strict", "status", "outcome"),
    [("0", 0, "1 passed, 3 skipped"), ("1", 1, "1 failed, 1 passed, 1 skipped, 1 error")],
)
def test_only_allowed_skips_pass_in_ci(
    strict: str, status: int, outcome: str, tmp_path: Path
) -> None:
    for name, source in CASES.items():
        (tmp_path / f"test_{name}.py").write_text(source, encoding="utf-8")
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", "-o", "markers=unit"]
    options += ["--continue-on-collection-errors"]
    done = run(
        [sys.executable, "-m", "pytest", *options, "-c", os.devnull, str(tmp_path)],
        cwd=ROOT,
        env=dict(os.environ) | {"EARSHOT_CI_STRICT": strict},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome in done.stdout.splitlines()[-1], done.stdout + done.stderr
    assert done.returncode == status
