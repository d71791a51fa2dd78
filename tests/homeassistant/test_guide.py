"""The guide to Home Assistant, followed word for word with a real one."""

import asyncio
from pathlib import Path

import pytest

from tests.homeassistant.harness import home_assistant, signed_in
from tests.ports import reserved_port
from tests.repo.guide import blocks, reading
from tests.shared import ROOT

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("home_assistant")]

LIGHT = "light.kitchen_lights"


def test_the_guide_to_home_assistant(tmp_path: Path) -> None:
    """The page of Home Assistant itself is used through the API behind it."""
    folders = [tmp_path / name for name in ("home", "house")]
    for folder in folders:
        folder.mkdir()

    async def scenario(url: str, wyoming: int, port: int) -> None:
        settings = {"EARSHOT_WYOMING__PORT": str(wyoming), "EARSHOT_TTS__ENGINE": "espeak"}
        with reading(folders[1], port, **settings) as reader:
            async with signed_in(url) as home:
                await home.post("/api/services/light/turn_off", {"entity_id": LIGHT})
                reader.replaced |= {
                    "PASTE_THE_TOKEN_HERE": await home.long_lived_token(),
                    "http://homeassistant.local:8123": url,
                    "10300": str(wyoming),
                }
                for block in blocks(ROOT / "docs/guides/home-assistant.md"):
                    await asyncio.to_thread(reader.do, block)
                    if block.heading == "Switch a lamp":
                        assert (await home.get(f"/api/states/{LIGHT}"))["state"] == "on"
                added = await home.add("wyoming", host="127.0.0.1", port=wyoming)
                assert (added["type"], added["title"]) == ("create_entry", "earshot")
                assert {"stt.earshot", "tts.earshot", "conversation.earshot"} <= (
                    await home.entities()
                )

    with (
        home_assistant(folders[0]) as url,
        reserved_port() as wyoming,
        reserved_port() as port,
    ):
        asyncio.run(scenario(url, wyoming, port))
