"""A real Home Assistant with our Wyoming server behind its voice assistant."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from core.audio import ASR_RATE_HZ
from tests.homeassistant.harness import HomeAssistant, home_assistant, signed_in
from tests.ports import reserved_port
from tests.server.process import serving
from tests.speech import say

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("home_assistant")]

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


async def understood(server: str, sound: bytes) -> str:
    """Returns our own recogniser's transcript of the speech of Assist."""
    form = aiohttp.FormData({"model": "default", "language": "en"})
    form.add_field("file", sound, filename="answer.mp3")
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server}/v1/audio/transcriptions", data=form) as response,
    ):
        assert response.status == 200, await response.text()
        return str((await response.json())["text"])


def test_assist_recognises_answers_and_speaks_through_our_server(tmp_path: Path) -> None:
    """Set up through Home Assistant's own API; its light is turned on by a voice that we heard, and
    a question to us is answered by our skills."""
    pcm = np.concatenate([np.zeros(4000, np.int16), say(TEXT), np.zeros(2 * ASR_RATE_HZ, np.int16)])
    folders = [tmp_path / name for name in ("home", "server")]
    for folder in folders:
        folder.mkdir()

    async def main(url: str, port: int) -> tuple[dict[str, Any], dict[str, Any], list[bytes]]:
        async with signed_in(url) as home:
            added = await home.add("wyoming", host="127.0.0.1", port=port)
            assert (added["type"], added["title"]) == ("create_entry", "earshot")
            assert {"stt.earshot", "tts.earshot", "conversation.earshot"} <= await home.entities()
            await home.post("/api/services/light/turn_off", {"entity_id": "light.kitchen_lights"})
            local = await home.assist(await pipeline(home, "conversation.home_assistant"), pcm)
            light = await home.get("/api/states/light.kitchen_lights")
            assert light["state"] == "on", local
            ours = await home.assist(await pipeline(home, "conversation.earshot"), pcm)
            return local, ours, [await home.said(run_events) for run_events in (local, ours)]

    with (
        home_assistant(folders[0]) as url,
        reserved_port() as port,
        serving(folders[1], settings={"EARSHOT_WYOMING__PORT": str(port)}) as server,
    ):
        local, ours, sounds = asyncio.run(main(url, port))
        heard = [asyncio.run(understood(server.url, sound)) for sound in sounds]
    for run_events in (local, ours):
        assert run_events["stt-end"]["stt_output"]["text"].lower().strip(" .") == TEXT
    answer = ours["intent-end"]["intent_output"]["response"]["speech"]["plain"]["speech"]
    assert "kitchen" in answer.lower()
    assert ["light" in words for words in heard] == [True, True], heard
