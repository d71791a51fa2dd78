"""The MCP server of a configuration: off by default, and with the tools that it may offer."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

from core.access.named_key import NamedKey
from devices.registry.named_keys import NamedKeys
from pipeline.conversation.conversation import Conversations
from pipeline.tools.functions import FunctionTools
from pipeline.tools.toolbox import Toolbox
from server.compose.mcp_server import mcp_server_routes, mcp_tools
from server.config import Config
from server.config.sections.mcp_server import McpServerConfig
from tests.pipeline.fakes import Counts, ManualClock

HOUSE, CONFIGURED = FunctionTools([]), FunctionTools([])


@dataclass
class FakeKeys:
    on_revoked: list[Callable[[NamedKey], None]] = field(default_factory=list)


def opened(config: McpServerConfig) -> tuple[set[str], FakeKeys]:
    """Returns the methods at /mcp, and the keys."""
    keys = FakeKeys()
    routes = mcp_server_routes(
        Config(mcp_server=config),
        Toolbox([], Counts()),
        Conversations(),
        cast("NamedKeys", keys),
        ManualClock(),
    )
    assert {(route.path, route.scope) for route in routes} <= {("/mcp", "talk")}
    return {route.method for route in routes}, keys


def test_the_server_is_off_by_default_and_its_sessions_end_with_their_keys() -> None:
    assert opened(McpServerConfig()) == (set(), FakeKeys())
    methods, keys = opened(McpServerConfig(enabled=True))
    assert methods == {"POST", "GET", "DELETE"}
    assert len(keys.on_revoked) == 1


def test_configured_tools_are_offered_only_by_name() -> None:
    assert mcp_tools(McpServerConfig(), [HOUSE], [CONFIGURED]) == [HOUSE]
    named = McpServerConfig(allow=("weather",))
    assert mcp_tools(named, [HOUSE], [CONFIGURED]) == (HOUSE, CONFIGURED)
    assert named.as_settings("en", "1").allow == frozenset({"weather"})
