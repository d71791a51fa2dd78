"""A real Home Assistant with our Wyoming server behind its voice assistant."""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.audio import ASR_RATE_HZ
from tests.homeassistant.home import HomeAssistant, home_assistant, signed_in
from tests.ports import reserved_port
from tests.server.process import serving
from tests.speech import say

pytestmark = pytest.mark.real

TEXT = "turn on the kitchen lights"


async def pipeline(home: HomeAssistant, engine: str) -> str:
    made = await home.call(
        type="assist_pipeline/pipeline/create",
        name=engine,
        language="en",
        conversation_engine=engine,
        conversation_language="en",
        stt_engine="stt.earshot",
        stt_language="en",
        tts_engine="tts.earshot",
        tts_language="en",
        tts_voice=None,
        wake_word_entity=None,
        wake_word_id=None,
    )
    return str(made["id"])


async def spoken(home: HomeAssistant, text: str) -> bytes:
    """Its text to speech, as a WAV file: another kind needs FFmpeg there."""
    asked = {"engine_id": "tts.earshot", "message": text, "options": {"preferred_format": "wav"}}
    found = await home.post("/api/tts_get_url", asked)
    async with home.http.get(home.url + found["path"]) as response:
        assert response.status == 200
        return await response.read()


def test_assist_hears_answers_and_speaks_with_us(tmp_path: Path) -> None:
    """Set up through Home Assistant's own API; its light is turned on by a voice that we heard, and
    a question to us is answered by our skills."""
    pcm = np.concatenate([np.zeros(4000, np.int16), say(TEXT), np.zeros(2 * ASR_RATE_HZ, np.int16)])
    folders = [tmp_path / name for name in ("home", "server")]
    for folder in folders:
        folder.mkdir()

    async def main(url: str, port: int) -> tuple[dict[str, Any], dict[str, Any], bytes]:
        async with signed_in(url) as home:
            added = await home.add("wyoming", host="127.0.0.1", port=port)
            assert (added["type"], added["title"]) == ("create_entry", "earshot")
            assert {"stt.earshot", "tts.earshot", "conversation.earshot"} <= await home.entities()
            await home.post("/api/services/light/turn_off", {"entity_id": "light.kitchen_lights"})
            local = await home.assist(await pipeline(home, "conversation.home_assistant"), pcm)
            light = await home.get("/api/states/light.kitchen_lights")
            assert light["state"] == "on", local
            ours = await home.assist(await pipeline(home, "conversation.earshot"), pcm)
            return local, ours, await spoken(home, "The light is on.")

    with (
        home_assistant(folders[0]) as url,
        reserved_port() as port,
        serving(folders[1], settings={"EARSHOT_WYOMING__PORT": str(port)}),
    ):
        local, ours, sound = asyncio.run(main(url, port))
    for told in (local, ours):
        assert told["stt-end"]["stt_output"]["text"].lower().strip(" .") == TEXT
        assert told["tts-end"]["tts_output"]["url"]
    answer = ours["intent-end"]["intent_output"]["response"]["speech"]["plain"]["speech"]
    assert "kitchen" in answer.lower()
    assert sound[:4] == b"RIFF"
    assert len(sound) > 22_050  # half a second
