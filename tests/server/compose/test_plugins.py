"""Tools and doors of other packages are made if the configuration names them, else ignored."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.errors import ConfigError
from core.http.routes import Route
from core.ports import ToolContext
from server.compose.doors import _plugin_tasks
from server.compose.plugins import (
    OpenedDoor,
    choose_plugins,
    create_tools,
    open_plugin_doors,
    plugin_routes,
    unused_plugins,
)
from server.compose.tools import configured_tools
from server.config import Config
from server.http.edge import ErrorBoundary
from tests.pipeline.fakes import Counts
from tests.plugins.packages import EXAMPLES, declare, install, searched

SETTINGS = (
    "from msgspec import Struct\n"
    "class Settings(Struct, frozen=True, forbid_unknown_fields=True):\n    level: int = 1\n"
)
TOOLS = """
from contextlib import asynccontextmanager
from core.ports import ToolOutcome, ToolSpec
told = []
class Provider:
    def tools(self, context):
        return (ToolSpec("NAME", "Does it.", {"type": "object"}),)
    async def call(self, name, arguments, context):
        return ToolOutcome({"done": True})
    @asynccontextmanager
    async def running(self):
        told.append("up")
        yield
        told.append("down")
def create(settings):
    return Provider()
"""
SERVICES: Any = None


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder on the import path, in which a test declares packages."""
    with searched(tmp_path, monkeypatch) as folder:
        yield folder


def add(site: Path, group: str, name: str, source: str) -> str:
    """Declares a package `acme 1.0` with one tool or door; returns its module."""
    module = f"acme_{name}"
    (site / f"{module}.py").write_text(source)
    declare(site, "acme", {f"earshot.{group}": {name: module}})
    return module


def config(**fields: Any) -> Config:
    return msgspec.convert(fields, Config)


def test_a_plugin_gets_the_settings_of_its_table(site: Path) -> None:
    install(EXAMPLES["tool"], site)
    tables = {"bins": {"collected": {"friday": "the brown one"}}}
    (provider,) = create_tools(config(tools={"plugins": tables}).tools).values()
    call = provider.call("which_bin", {"day": "friday"}, ToolContext("", "en"))
    assert asyncio.run(call).data == {"bin": "the brown one"}


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({}, "missing required field `collected`"),
        ({"collected": {"someday": "x"}}, "Invalid enum value 'someday'"),
        ({"collect": {}}, "unknown key 'collect'; known keys: collected"),
    ],
)
def test_wrong_settings_name_the_table_and_the_package(
    table: dict[str, Any], why: str, site: Path
) -> None:
    install(EXAMPLES["tool"], site)
    where = r"tools\.plugins\.bins \(earshot-example-tool 0\.1\.0\): "
    with pytest.raises(ConfigError, match=f"{where}.*{why}"):
        create_tools(config(tools={"plugins": {"bins": table}}).tools)


def test_an_unknown_plugin_is_refused_with_the_known_ones(site: Path) -> None:
    install(EXAMPLES["door"], site)
    message = r"doors\.aks: no installed package provides 'aks'; there are: ask"
    with pytest.raises(ConfigError, match=message):
        choose_plugins("earshot.doors", {"aks": {}})


def test_a_name_of_a_built_in_door_is_refused(site: Path) -> None:
    add(site, "doors", "whip", f"{SETTINGS}def create(settings, services): ...\n")
    with pytest.raises(ConfigError, match=r"doors\.whip \(acme 1\.0\): 'whip' is built in"):
        choose_plugins("earshot.doors", {"whip": {}})
    assert [is_usable for is_usable, _ in unused_plugins(config())] == [False]


def test_a_broken_package_fails_only_if_it_is_named(site: Path) -> None:
    add(site, "doors", "broken", "import nosuchlibrary")
    ((is_usable, sentence),) = unused_plugins(config())
    assert not is_usable
    assert sentence.startswith("door broken of acme 1.0 cannot be used: ")
    with pytest.raises(ConfigError, match=r"doors\.broken \(acme 1\.0\): .* cannot be imported"):
        choose_plugins("earshot.doors", {"broken": {}})


def test_a_package_that_is_not_named_does_nothing(site: Path) -> None:
    module = add(site, "tools", "idle", f"{SETTINGS}{TOOLS.replace('NAME', 'idle')}")
    assert list(unused_plugins(config())) == [
        (True, "tool idle of acme 1.0 is installed and not used; [tools.plugins.idle] turns it on")
    ]
    assert create_tools(config().tools) == {}
    assert __import__(module).told == []
    assert list(unused_plugins(config(tools={"plugins": {"idle": {}}}))) == []


def test_tools_run_as_long_as_the_server(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    module = add(site, "tools", "lamp", f"{SETTINGS}{TOOLS.replace('NAME', 'light')}")
    caplog.set_level(logging.INFO)

    async def main() -> None:
        async with configured_tools(config(tools={"plugins": {"lamp": {}}}).tools) as (_, lamp):
            assert [spec.name for spec in lamp.tools(ToolContext("", "en"))] == ["light"]
            assert __import__(module).told == ["up"]

    asyncio.run(main())
    assert __import__(module).told == ["up", "down"]
    assert "tools of tools.plugins.lamp (acme 1.0)" in caplog.text


def test_a_tool_with_the_name_of_a_built_in_one_is_refused(site: Path) -> None:
    add(site, "tools", "clash", f"{SETTINGS}{TOOLS.replace('NAME', 'set_timer')}")
    tools = config(tools={"plugins": {"clash": {}}}).tools
    message = r"\(acme 1\.0\): these tools are built in, rename yours: set_timer"
    with pytest.raises(ConfigError, match=message):
        create_tools(tools, reserved_names={"set_timer", "turn_on"})


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return object()", "what it creates is no ToolProvider: it has no call, tools"),
        ("raise KeyError('x')", "does not start: KeyError: 'x'"),
        ("return type('T', (), {'call': 1, 'tools': 1})()", "does not list its tools: TypeError"),
    ],
)
def test_a_tool_that_cannot_be_created_names_its_package(body: str, why: str, site: Path) -> None:
    name = f"odd{len(body)}"
    add(site, "tools", name, f"{SETTINGS}def create(settings):\n    {body}\n")
    with pytest.raises(ConfigError, match=rf"tools\.plugins\.{name} \(acme 1\.0\):? {why}"):
        create_tools(config(tools={"plugins": {name: {}}}).tools)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("return object()", ": what it creates is no PluginDoor: it has no routes"),
        ("raise KeyError('x')", " does not start: KeyError: 'x'"),
        (
            "return type('D', (), {'routes': ['/x']})()",
            r": '/x' is not a core\.http\.routes\.Route",
        ),
        (
            "return type('D', (), {'routes': [Route('GET', '/x', print, '', '', request=open)]})()",
            ": its routes cannot be mounted: TypeError: ",
        ),
        (
            "return type('D', (), {'routes': [Route('GET', '/{', print, '', '')]})()",
            ": its routes cannot be mounted: ValueError: Invalid path",
        ),
    ],
)
def test_a_door_that_cannot_be_opened_names_its_package(body: str, why: str, site: Path) -> None:
    name, head = f"odd{len(body)}", f"from core.http.routes import Route\n{SETTINGS}"
    add(site, "doors", name, f"{head}def create(settings, services):\n    {body}\n")
    chosen = choose_plugins("earshot.doors", {name: {}})
    with pytest.raises(ConfigError, match=rf"doors\.{name} \(acme 1\.0\){why}"):
        open_plugin_doors(chosen, SERVICES)


class Listens:
    """A door whose background task fails."""

    routes = ()

    async def run(self) -> None:
        raise KeyError("x")


def test_a_failed_background_task_of_a_door_ends_only_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    metrics = Counts()
    door = OpenedDoor("doors.a (acme 1.0)", "a", (), Listens())
    ((name, run),) = _plugin_tasks([door], ErrorBoundary(metrics)).items()
    asyncio.run(run())
    assert name == "door-a"
    assert "doors.a (acme 1.0) failed" in caplog.text
    assert metrics.counts["earshot_errors:internal"] == 1


async def nothing(_: object) -> None: ...


def route(path: str) -> Route:
    return Route("GET", path, nothing, "A test.", "test")


def opened(name: str, *paths: str) -> OpenedDoor:
    return OpenedDoor(f"doors.{name} (acme 1.0)", name, tuple(map(route, paths)), None)


def test_two_doors_with_the_same_path_are_refused() -> None:
    ours = (route("/health"), route("/v1/calls/{call_id}"))
    assert [one.path for one in plugin_routes(ours, [opened("a", "/a"), opened("b", "/b")])] == [
        "/a",
        "/b",
    ]
    with pytest.raises(ConfigError, match=r"GET /v1/calls/\{id\} is answered by Earshot itself"):
        plugin_routes(ours, [opened("a", "/v1/calls/{id}")])
    with pytest.raises(ConfigError, match=r"doors\.b .*: GET /a is answered by doors\.a"):
        plugin_routes(ours, [opened("a", "/a"), opened("b", "/a")])
