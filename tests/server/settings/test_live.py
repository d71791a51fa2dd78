"""A whole server: a saved setting holds for the next session, and at the next start."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from tests.server.process import run, serving

pytestmark = pytest.mark.live


def test_the_next_session_has_the_saved_settings(tmp_path: Path) -> None:
    (tmp_path / "earshot.toml").write_text("# of the house\n")

    async def act(url: str) -> None:
        async with aiohttp.ClientSession(url) as client:

            async def speed() -> float:
                answer = await client.post("/v1/realtime/client_secrets", json={})
                session = (await answer.json())["session"]
                return float(session["audio"]["output"]["speed"])

            assert await speed() == 1.0
            form = await (await client.get("/v1/settings")).json()
            kinds = {one["key"]: one for one in form["fields"]}
            assert kinds["tts.engine"]["source"] == "EARSHOT_TTS__ENGINE"
            assert len(kinds["assistant.voice"]["choices"]) > 50
            body = {"changes": {"assistant.speed": 1.2}, "etag": form["etag"]}
            saved = await (await client.post("/v1/settings", json=body)).json()
            assert not saved["needs_restart"]
            assert await speed() == 1.2

    with serving(tmp_path) as server:
        asyncio.run(act(server.url))
    assert (tmp_path / "earshot.toml").read_text() == "# of the house\n\n[assistant]\nspeed = 1.2\n"
    assert "speed = 1.2" in run(tmp_path, "config").stdout
