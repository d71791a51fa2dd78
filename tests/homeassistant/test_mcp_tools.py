"""A real Home Assistant's own tools, which its MCP server offers to a language model.

The MCP server of this version supports only HTTP with SSE.
"""

import asyncio
from pathlib import Path

import pytest

from core.ports import ToolContext
from tests.devices.home_assistant.tool_llm import Asks, ask, earshot
from tests.homeassistant.harness import home_assistant, signed_in

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("home_assistant")]

CONTEXT = ToolContext("conv_1", "en")
LIGHT = "light.kitchen_lights"
CONNECTED_S = 60


def test_a_language_model_turns_a_light_on_with_the_offered_tool(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main(url: str) -> str:
        async with signed_in(url) as home:
            assert (await home.add("mcp_server"))["type"] == "create_entry"
            await home.post("/api/services/light/turn_off", {"entity_id": LIGHT})
            token = await home.long_lived_token()
            async with earshot(url, token) as world:
                toolbox = world.services().toolbox
                async with asyncio.timeout(CONNECTED_S):
                    while "HassTurnOn" not in toolbox.names(CONTEXT):  # noqa: ASYNC110 (a process)
                        await asyncio.sleep(0.1)
                answer = await ask(world, "light")
                assert isinstance(world.llm, Asks)
                assert {"HassTurnOff", "home_assistant"} <= set(world.llm.offered)
            assert (await home.get(f"/api/states/{LIGHT}"))["state"] == "on", answer
            assert token not in caplog.text
            return answer

    with home_assistant(tmp_path) as url:
        answer = asyncio.run(main(url))
    assert "action_done" in answer
