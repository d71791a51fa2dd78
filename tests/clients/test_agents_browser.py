"""`@openai/agents` over WebRTC in a Chromium, on a page of another origin than the server's."""

from pathlib import Path

import pytest
from openai import OpenAI

from tests.clients.page_site import site
from tests.clients.scripted_server import LONG, answering
from tests.e2e.recorded_microphone import RATE_HZ, talking, write_clip
from tests.speech import say

pytestmark = [pytest.mark.real, pytest.mark.browser, pytest.mark.xdist_group("npm")]

LEAD_MS = 3000
"From opening the microphone to the first word: the call is up by then, or an answer is played."


def test_openai_agents_in_chromium_work_with_our_server(agents_js: Path, tmp_path: Path) -> None:
    words = say("turn on the kitchen light", rate_hz=RATE_HZ, lead_ms=LEAD_MS, tail_ms=60_000)
    clip = write_clip(tmp_path / "mic.wav", words)
    with site(agents_js) as origin:
        settings = {"EARSHOT_SERVER__ALLOWED_ORIGINS": origin}
        with (
            answering(tmp_path, **settings) as server,
            talking(clip, f"{origin}/page.html") as page,
        ):
            page.wait_for_function("() => window.run")
            client = OpenAI(api_key="key", base_url=f"{server.url}/v1")
            minted = client.realtime.client_secrets.create(session={"type": "realtime"})
            got = page.evaluate("([url, key]) => window.run(url, key)", [server.url, minted.value])
    assert "client secret" in got["refused"]  # another site's script may read why
    assert got["callId"].startswith("rtc_")
    assert got["instructions"] == "Be brief."
    assert "kitchen light" in got["heard"][0].lower()
    assert got["bySpeech"] == got["byText"] == ["One moment.", "It says on."]
    assert got["energy"] > 1e-3
    assert LONG.startswith(got["stopped"])
    assert 0 < len(got["stopped"]) < len(LONG)
    cut, *after = got["spokenOver"]["said"]
    assert got["spokenOver"]["isThatAnswer"]
    assert f"{LONG} {LONG}".startswith(cut)
    assert 0 < len(cut) < len(f"{LONG} {LONG}")
    assert after == ["One moment.", "It says on."]
    assert got["called"] == [{"on": True}] * 3
    assert (got["before"], got["error"], got["errors"]) == (0, "unknown_event_type", 1)
    assert not [line for line in server.said if " ERROR " in line]
