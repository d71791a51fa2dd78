"""hassil's modules import each other in a circle, so two threads must not load them at once."""

import subprocess
import sys

import pytest

from tests.shared import ROOT

pytestmark = pytest.mark.live

WATCHED = """
import sys
import engines.llm.intents as intents
from engines.llm.intents import Settings, create, phrases, understand

loose = []

class Watch:
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] == "hassil" and not intents._import_lock.locked():
            loose.append(name)

sys.meta_path.insert(0, Watch())
{call}
assert "hassil.numbers" in sys.modules
sys.exit(f"loaded without the lock: {{loose}}" if loose else 0)
"""


@pytest.mark.parametrize(
    "call", ["create(Settings())", "phrases('en', (), 1)", "understand('', 'en', ())"]
)
def test_one_thread_at_a_time_loads_the_library(call: str) -> None:
    script = [sys.executable, "-c", WATCHED.format(call=call)]
    done = subprocess.run(script, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
