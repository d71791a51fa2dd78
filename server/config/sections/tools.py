"""Section `[tools]`: functions of Python modules, plugins and MCP servers."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from pipeline.tools.guards import GuardSettings
from pipeline.tools.mcp.settings import McpServerSettings
from server.config.types import PLUGIN_NAME

ServerName = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]{1,24}$")]
"Name of an MCP server. It is put before a tool's name if another server has a tool of that name."


class ToolsConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of tools in addition to the built-in skills."""

    timeout_s: Annotated[
        float,
        Meta(
            gt=0,
            le=300,
            description="Seconds that one tool call may take. A tool can set its own limit.",
        ),
    ] = 10.0
    offered: Annotated[
        Literal["relevant", "all"],
        Meta(
            description=(
                "Tools that are offered to a language model: only those that may be relevant to the"
                " user's words, or all."
            )
        ),
    ] = "relevant"
    rooms: Annotated[
        bool,
        Meta(
            description=(
                "Whether the assistant may speak in other rooms and ask people there, for whoever"
                " talks to it. Programs with a key can do it by the MCP server in any case."
            )
        ),
    ] = False
    modules: Annotated[
        tuple[str, ...],
        Meta(
            description=(
                "Dotted names of Python modules. Their functions that are decorated with"
                " pipeline.tools.functions.tool become tools."
            )
        ),
    ] = ()
    plugins: Annotated[
        dict[Annotated[str, Meta(pattern=PLUGIN_NAME)], dict[str, Any]],
        Meta(
            title="tables with settings",
            description=(
                "Tools of installed packages, by the name that the package gives them, each with"
                " its own settings. `earshot doctor` lists the installed ones."
            ),
        ),
    ] = field(default_factory=dict)
    guards: Annotated[
        dict[Annotated[str, Meta(pattern=PLUGIN_NAME)], GuardSettings],
        Meta(
            title="tables with locks, and tools or devices",
            description=(
                "Tools and devices that only some people may use, known by their voices: tables by"
                " name with locks, tools, devices, code."
            ),
        ),
    ] = field(default_factory=dict)
    mcp: Annotated[
        dict[ServerName, McpServerSettings],
        Meta(
            title="tables with command or url",
            description="MCP servers by name, each with command, args, env or url, headers, proxy.",
        ),
    ] = field(default_factory=dict)
