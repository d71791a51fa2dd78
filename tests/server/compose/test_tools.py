"""The configuration table `[tools]`: what is read, what is shown, and what runs."""

import asyncio
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from core.errors import ConfigError
from core.ports import ToolContext
from engines.base import ToolCall
from pipeline.tools.guards import Guards
from pipeline.tools.home import Home, default_home
from pipeline.tools.toolbox import Toolbox
from server.compose.tools import check_guarded_devices, configured_tools, warn_of_unknown_tools
from server.config.sections.tools import ToolsConfig
from server.config.types import masked
from tests.pipeline.fakes import Counts
from tests.shared import ROOT

pytestmark = pytest.mark.live

CONTEXT = ToolContext("conv_1", "en")
OLD_SERVER = str(ROOT / "tests/pipeline/tools/mcp/server_2025.py")


def read(**fields: Any) -> ToolsConfig:
    return msgspec.convert(fields, ToolsConfig)


def test_functions_and_servers_of_the_configuration_are_tools() -> None:
    config = read(
        modules=["tests.pipeline.tools.user_tools"],
        mcp={
            "old": {"command": sys.executable, "args": [OLD_SERVER]},
            "older": {"command": sys.executable, "args": [OLD_SERVER]},
            "gone": {"command": "/nowhere/server"},
        },
    )

    async def main() -> None:
        async with configured_tools(config) as providers:
            toolbox = Toolbox(providers, Counts(), timeout_s=config.timeout_s)
            assert toolbox.names(CONTEXT) == ("weather", "feed", "clean", "ring", "outcome")
            async with asyncio.timeout(20):
                while len(toolbox.names(CONTEXT)) < 7:  # noqa: ASYNC110 (in other processes)
                    await asyncio.sleep(0.01)
            assert toolbox.names(CONTEXT)[5:] == ("old", "older_old")
            calls = [ToolCall("c", name, {}) for name in ("older_old", "ring")]
            results = await toolbox.run(calls, CONTEXT)
            assert results == ['{"text": "as ever"}', '{"done": true}']

    asyncio.run(main())


def test_a_wrong_module_fails_the_start() -> None:
    async def main() -> None:
        async with configured_tools(read(modules=["tests.nowhere"])):
            pytest.fail("it must not start")

    with pytest.raises(ConfigError, match=r"tools\.modules: 'tests\.nowhere'"):
        asyncio.run(main())


def test_secrets_of_servers_are_shown_nowhere() -> None:
    config = read(
        mcp={
            "a": {"command": "x", "env": {"FOO": "hush"}},
            "b": {"url": "http://b/mcp", "headers": {"Authorization": "Bearer hush"}},
        }
    )
    assert "hush" not in repr(config)
    shown = repr(masked(msgspec.to_builtins(config), "tools"))
    assert "hush" not in shown
    assert "http://b/mcp" in shown


HANGS = """
import asyncio, sys, threading
from core.ports import ToolContext
from pipeline.tools.functions import tool
from server.config.sections.tools import ToolsConfig
from pipeline.tools.guards import Guards
from pipeline.tools.home import Home, default_home
from server.compose.tools import check_guarded_devices, configured_tools, warn_of_unknown_tools

begun = threading.Event()

@tool()
def hang() -> None:
    "Waits for what never comes."
    begun.set()
    threading.Event().wait()

async def main():
    async with configured_tools(ToolsConfig(modules=("__main__",))) as (functions,):
        call = asyncio.create_task(functions.call("hang", {}, ToolContext("conv_1", "en")))
        await asyncio.to_thread(begun.wait)
        call.cancel()

asyncio.run(main())
"""


def test_a_hanging_tool_does_not_delay_the_servers_end() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], cwd=ROOT, timeout=20, check=False)
    assert done.returncode == 0


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"mcp": {"a b": {"command": "x"}}}, "regex"),
        ({"mcp": {"a": {"command": "x", "envs": {}}}}, "unknown field `envs`"),
        ({"mcp": {"a": {"command": "x", "timeout_s": 0}}}, "timeout_s"),
        ({"timeout_s": 1000}, "timeout_s"),
        ({"module": []}, "unknown field `module`"),
    ],
)
def test_wrong_settings_are_named(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=why):
        read(**fields)


def test_a_guard_of_an_unknown_device_fails_the_start_and_an_unknown_tool_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def guards(**settings: Any) -> Guards:
        return Guards(read(guards={"door": {"locks": ["Anna"], **settings}}).guards)

    home = Home(default_home())
    check_guarded_devices(guards(devices=["lock.hallway_door"]), home)
    with pytest.raises(ConfigError, match=r"no device 'lock\.front'; it has .*lock\.hallway_door"):
        check_guarded_devices(guards(devices=["lock.front"]), home)
    warn_of_unknown_tools(guards(tools=["HassTurnOff", "open_gate"]), ["HassTurnOff"])
    assert [record.getMessage() for record in caplog.records] == [
        "! tools.guards: there is no tool 'open_gate' yet; a typo would leave it open"
    ]


def test_the_code_of_a_guard_is_never_shown() -> None:
    guard = {"locks": ["Anna"], "tools": ["open_gate"], "code": "4711"}
    config = read(guards={"door": guard})
    assert "4711" not in str(masked(msgspec.to_builtins(config.guards), "guards"))
