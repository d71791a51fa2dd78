"""Real MCP servers in their own processes: that of the official package, and one of 2025 written by
hand."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.errors import ConfigError
from core.ports import ToolContext, ToolOutcome
from engines.base import ToolCall
from pipeline.tools.mcp import McpServerSettings, McpToolProvider, client, mcp_tools
from pipeline.tools.toolbox import Toolbox
from tests.pipeline.fakes import Counts
from tests.pipeline.tools.mcp.kitchens import Kitchen, running
from tests.ports import reserved_port
from tests.shared import ROOT

pytestmark = pytest.mark.live


@pytest.fixture(params=["stdio", "http", "sse"])
def kitchen(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "stdio":
        yield Kitchen(tmp_path, None)
    else:
        with reserved_port() as port:
            yield Kitchen(tmp_path, port, is_older=request.param == "sse")


CONTEXT = ToolContext("conv_1", "en")
PATIENCE_S = 30.0
GONE = "tool_unavailable"


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


async def until(condition: Callable[[], object]) -> None:
    """Polls, because servers report only to the client under test when they are ready."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 (it happens in another process)
            await asyncio.sleep(0.01)


async def with_kitchen(kitchen: Kitchen, scenario: Callable[[McpToolProvider], Any]) -> None:
    tools = kitchen.tools()
    await kitchen.open()
    try:
        async with running(tools):
            await until(lambda: tools.is_connected)
            await scenario(tools)
    finally:
        await kitchen.close()


def names(tools: McpToolProvider) -> list[str]:
    return [spec.name for spec in tools.tools(CONTEXT)]


def test_tools_are_listed_and_called(kitchen: Kitchen) -> None:
    async def scenario(tools: McpToolProvider) -> None:
        assert names(tools)[:3] == ["weigh", "cook", "oven_burn"]
        assert [s.name for s in tools.tools(CONTEXT) if s.is_read_only] == ["weigh"]
        toolbox = Toolbox([tools], Counts())
        assert toolbox.may_run_early(ToolCall("c", "weigh", {}), CONTEXT)
        calls = [("weigh", {"item": "egg"}), ("oven_burn", {}), ("photograph", {}), ("weigh", {})]
        results = await toolbox.run([ToolCall("c", *call) for call in calls], CONTEXT)
        assert results[0] == '{"grams": 3}'
        assert "tool_failed" in results[1]
        assert "it burned" in results[1]
        assert results[2] == '{"text": "a cake", "left_out": "1 image"}'
        assert "'item' is a required property" in results[3]

    asyncio.run(with_kitchen(kitchen, scenario))


def test_a_cancelled_call_is_cancelled_on_the_server(kitchen: Kitchen) -> None:
    async def scenario(tools: McpToolProvider) -> None:
        slow = asyncio.ensure_future(tools.call("cook", {"dish": "stew", "seconds": 60}, CONTEXT))
        await until(lambda: kitchen.has("cooking"))
        assert not kitchen.has("cancelled")
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        await until(lambda: kitchen.has("cancelled"))
        quick = await tools.call("cook", {"dish": "egg", "seconds": 0}, CONTEXT)
        assert quick == ToolOutcome({"result": "egg is done"})

    asyncio.run(with_kitchen(kitchen, scenario))


def test_new_tools_appear_when_the_server_reports_them(kitchen: Kitchen) -> None:
    async def scenario(tools: McpToolProvider) -> None:
        before = tools.tools(CONTEXT)
        assert "bake" not in names(tools)
        await tools.call("renovate", {}, CONTEXT)
        await until(lambda: "bake" in names(tools))
        assert tools.tools(CONTEXT) is not before
        assert await tools.call("bake", {"dish": "pie"}, CONTEXT) == ToolOutcome({"result": "pie"})

    asyncio.run(with_kitchen(kitchen, scenario))


def test_a_server_that_ends_during_a_call_is_reconnected(kitchen: Kitchen) -> None:
    async def scenario(tools: McpToolProvider) -> None:
        assert (await tools.call("collapse", {}, CONTEXT)).error == GONE
        await until(lambda: not tools.is_connected)
        assert names(tools) == []
        assert (await tools.call("weigh", {"item": "egg"}, CONTEXT)).error == GONE
        await kitchen.close()
        await kitchen.open()
        await until(lambda: tools.is_connected)
        assert await tools.call("weigh", {"item": "egg"}, CONTEXT) == ToolOutcome({"grams": 3})
        assert len(kitchen.starts()) == 2

    asyncio.run(with_kitchen(kitchen, scenario))


def test_an_address_with_only_sse_needs_no_second_address(tmp_path: Path) -> None:
    with reserved_port() as port:
        kitchen = Kitchen(tmp_path, port, is_older=True)
        tools = McpToolProvider("kitchen", McpServerSettings(url=f"http://127.0.0.1:{port}/sse"))

        async def main() -> None:
            await kitchen.open()
            try:
                async with running(tools):
                    await until(lambda: tools.is_connected)
                    assert (await tools.call("weigh", {"item": "egg"}, CONTEXT)).data == {
                        "grams": 3
                    }
            finally:
                await kitchen.close()

        asyncio.run(main())


def test_a_program_that_is_killed_while_idle_is_started_again(tmp_path: Path) -> None:
    kitchen = Kitchen(tmp_path, None)

    async def scenario(tools: McpToolProvider) -> None:
        os.kill(kitchen.starts()[0], signal.SIGKILL)
        await until(lambda: not tools.is_connected)
        await until(lambda: tools.is_connected)
        assert len(kitchen.starts()) == 2

    asyncio.run(with_kitchen(kitchen, scenario))
    for pid in kitchen.starts():
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_program_gets_its_own_environment_but_not_that_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EARSHOT_API_KEY", "ours")
    kitchen = Kitchen(tmp_path, None)

    async def scenario(tools: McpToolProvider) -> None:
        assert (await tools.call("secret", {}, CONTEXT)).data == {"result": "hush-hush"}

    asyncio.run(with_kitchen(kitchen, scenario))


# Servers without the package, some of which misbehave.


def server_2025(*options: str) -> McpToolProvider:
    script = str(Path(__file__).parent / "server_2025.py")
    server = McpServerSettings(command=sys.executable, args=(script, *options))
    return McpToolProvider("old", server, first_wait_s=0.05)


def test_a_server_of_2025_lists_tools_and_reports_changes() -> None:
    async def main() -> None:
        tools = server_2025("late")
        async with running(tools):
            await until(lambda: names(tools) == ["new"])
            assert await tools.call("new", {}, CONTEXT) == ToolOutcome({"text": "as ever"})

    asyncio.run(main())


def test_a_server_that_exits_on_unknown_methods_is_connected() -> None:
    async def main() -> None:
        tools = server_2025("fragile")
        async with running(tools):
            await until(lambda: tools.is_connected)
            assert await tools.call("old", {}, CONTEXT) == ToolOutcome({"text": "as ever"})

    asyncio.run(main())


def test_too_many_tools_are_cut() -> None:
    async def main() -> None:
        tools = server_2025("huge")
        async with running(tools):
            await until(lambda: tools.is_connected)
            assert len(names(tools)) == 63

    asyncio.run(main())


def test_the_tool_list_is_refreshed_periodically(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "LIST_EVERY_S", 0.1)

    async def main() -> None:
        tools = server_2025("silent")
        async with running(tools):
            await until(lambda: names(tools) == ["new"])

    asyncio.run(main())


def test_an_unavailable_server_does_not_delay_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(client, "CONNECT_TIMEOUT_S", 0.5)
    speaks = ("-c", "echo the key s3cr3t99 is wrong >&2; exit 1")
    servers = {
        "missing": McpServerSettings(command="/nowhere/kitchen"),
        "ends": McpServerSettings(command="sh", args=speaks, env={"KEY": "s3cr3t99"}),
        "babbles": McpServerSettings(
            command="sh", args=("-c", "yes nonsense | head -c 100000; cat")
        ),
        "refuses": McpServerSettings(url="http://127.0.0.1:9/mcp"),
    }

    async def main() -> None:
        fine = server_2025()
        others = mcp_tools(servers)
        async with running(fine, server_2025("deaf"), *others):
            await until(lambda: fine.is_connected)
            assert await fine.call("old", {}, CONTEXT) == ToolOutcome({"text": "as ever"})
            assert not any(one.is_connected for one in others)
            parts = (*servers, "old: no answer")
            await until(lambda: all(f"mcp {name}" in caplog.text for name in parts))

    asyncio.run(main())
    assert "it last said: the key ******** is wrong" in caplog.text
    assert "s3cr3t99" not in "".join(
        record.getMessage() for record in caplog.records if record.name.startswith("pipeline")
    )


def test_stopping_while_connecting_leaves_no_process(tmp_path: Path) -> None:
    """`exec` makes the shell's process the one that never reads its input."""
    pid_file = tmp_path / "pid"
    command = f"echo $$ > {pid_file}; exec sleep 1000"

    async def main() -> None:
        tools = McpToolProvider("deaf", McpServerSettings(command="sh", args=("-c", command)))
        async with running(tools):
            await until(lambda: pid_file.exists() and pid_file.read_text().strip())

    asyncio.run(main())
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid_file.read_text()), 0)


def test_a_missing_library_is_reported_with_the_command_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(client, "find_spec", lambda name: None)
    assert mcp_tools({}) == ()
    with pytest.raises(ConfigError, match=r"`earshot extras add mcp`"):
        mcp_tools({"a": McpServerSettings(command="a")})
