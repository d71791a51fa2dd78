"""`use = "tools"`: Home Assistant's MCP server offers a language model its tools."""

import asyncio
import logging

import pytest

from pipeline.tools.mcp import client
from tests.devices.home_assistant.fake_server import TOKEN, fake_home
from tests.devices.home_assistant.harness import run, until
from tests.devices.home_assistant.mcp_server import home_with_tools
from tests.devices.home_assistant.tool_llm import CONTEXT, Asks, ask, earshot, has_tools

pytestmark = pytest.mark.live


def log_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if "mcp home_assistant" in one.getMessage()]


@pytest.fixture(autouse=True)
def secrets(caplog: pytest.LogCaptureFixture) -> object:
    """Checks after each test that no log line contains the token or a traceback."""
    with caplog.at_level(logging.DEBUG):
        yield
    lines = [logging.Formatter().format(one) for one in caplog.get_records("call")]
    assert not [line for line in lines if TOKEN in line or "of-somebody" in line]


def test_a_language_model_uses_the_tools_of_home_assistant(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with home_with_tools() as (home, switched), earshot(home.url) as world:
            await has_tools(world)
            answer = await ask(world, "light")
            assert "action_done" in answer
            assert isinstance(world.llm, Asks)
            assert {"home_assistant", "HassTurnOn", "GetLiveContext"} <= set(world.llm.offered)
            assert switched.calls == [{"name": "Kitchen Lights", "domain": ["light"]}]

    run(main())
    assert log_lines(caplog)[0] == "= mcp home_assistant: connected, tools: 2"


def test_a_token_refused_by_the_mcp_server_is_sent_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "FIRST_WAIT_S", 0.01)

    async def main() -> None:
        async with (
            home_with_tools(mcp_token="of-somebody") as (home, _),
            earshot(home.url) as world,
        ):
            await until(lambda: len(log_lines(caplog)) > 0)
            for _ in range(2):  # nor when Home Assistant was away and is there again
                home.logins = 0
                await home.hang_up()
                await until(lambda: home.logins > 0)
                await asyncio.sleep(0.05)  # no further request may come
            assert home.mcp_requests == 1
            assert "no_such_tool" in await ask(world, "light")
            assert "Done" in await ask(world, "a sentence")

    run(main())
    (line,) = log_lines(caplog)
    assert "HTTP 401: it does not let us in" in line


def test_a_wrong_token_is_not_tried_on_the_mcp_server(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with home_with_tools() as (home, _), earshot(home.url, "of-somebody-else") as world:
            await until(lambda: home.logins == 1)
            assert "does not let me in" in await ask(world, "a sentence")
            assert (home.logins, home.mcp_requests) == (1, 0)

    run(main())


def test_a_missing_mcp_integration_is_named(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with fake_home() as home, earshot(home.url) as world:
            await until(lambda: len(log_lines(caplog)) > 0)
            assert "Done" in await ask(world, "a sentence")

    run(main())
    assert log_lines(caplog)[0].endswith("HTTP 404: no MCP server is there")


def test_other_tools_work_while_home_assistant_is_away(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with home_with_tools() as (home, switched), earshot(home.url) as world:
            await has_tools(world)
            await home.stop()
            toolbox = world.services().toolbox
            await until(lambda: "HassTurnOn" not in toolbox.names(CONTEXT))
            assert "19" in await ask(world, "time")
            assert "cannot be reached" in await ask(world, "a sentence")
            assert "no_such_tool" in await ask(world, "light")
            await home.start()
            await has_tools(world)
            await ask(world, "light")
            assert len(switched.calls) == 1

    run(main())
