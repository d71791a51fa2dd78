"""Medooze's client of WHIP in a Chromium, on a page of another origin than the server's."""

from pathlib import Path

import pytest

from tests.clients.page_site import site
from tests.clients.programs import npm_program
from tests.e2e.recorded_microphone import RATE_HZ, talking, write_clip
from tests.server.process import serving
from tests.speech import say

pytestmark = [pytest.mark.real, pytest.mark.browser, pytest.mark.xdist_group("npm")]

KEY = "k" * 16
LEAD_MS = 2000
"From opening the microphone to the first word: the publication is up by then."


def test_a_whip_client_publishes_and_its_words_come_as_events(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    program = npm_program("whip_js", tmp_path_factory.mktemp("whip_js"))
    words = say("turn on the kitchen light", rate_hz=RATE_HZ, lead_ms=LEAD_MS, tail_ms=20_000)
    clip = write_clip(tmp_path / "mic.wav", words)
    with site(program) as origin:
        settings = {"EARSHOT_SERVER__ALLOWED_ORIGINS": origin, "EARSHOT_API_KEY": KEY}
        with (
            serving(tmp_path, settings=settings) as server,
            talking(clip, f"{origin}/page.html") as page,
        ):
            page.wait_for_function("() => window.run")
            got = page.evaluate("both => window.run(...both)", [server.url.rstrip("/"), KEY])
    assert "kitchen light" in got["heard"].lower()
    assert (got["state"], got["after"]) == ("connected", 404)
    assert not [line for line in server.said if " ERROR " in line]
