"""Conversion of MCP tools and results: limited in size, and valid for a model's API."""

import logging
from typing import Any

import pytest
from mcp_types import CallToolResult, Tool

from core.errors import ConfigError
from core.ports import ToolOutcome
from pipeline.tools.mcp.schema import MAX_TOOLS, tool_outcome, tool_specs
from pipeline.tools.mcp.settings import McpServerSettings

pytestmark = pytest.mark.live

SERVER = McpServerSettings(command="kitchen", env={"KEY": "hush-hush"}, timeout_s=7)


def tool(name: str, **fields: Any) -> Tool:
    return Tool.model_validate({"name": name, "inputSchema": {"type": "object"}, **fields})


def test_a_tool_keeps_its_name_description_and_schema() -> None:
    schema = {"type": "object", "properties": {"dish": {"type": "string"}}, "required": ["dish"]}
    (spec,), names = tool_specs(
        "kitchen",
        SERVER,
        [tool("oven.bake", description="Bakes.", inputSchema=schema)],
    )
    assert (spec.name, spec.description, spec.parameters) == ("oven_bake", "Bakes.", schema)
    assert (spec.is_read_only, spec.timeout_s) == (False, 7)
    assert spec.fallback_name == "kitchen_oven_bake"
    assert names == {"oven_bake": "oven.bake"}


@pytest.mark.parametrize(
    ("annotations", "is_read_only"),
    [
        (None, False),
        ({}, False),
        ({"readOnlyHint": False}, False),
        ({"readOnlyHint": True}, True),
        ({"idempotentHint": True}, False),
    ],
)
def test_only_a_tool_with_the_read_only_hint_is_read_only(
    annotations: dict[str, Any] | None, is_read_only: bool
) -> None:
    (spec,), _ = tool_specs("kitchen", SERVER, [tool("a", annotations=annotations)])
    assert spec.is_read_only is is_read_only


def test_the_tools_of_a_server_are_limited_in_number_and_size(
    caplog: pytest.LogCaptureFixture,
) -> None:
    large = tool("large", inputSchema={"type": "object", "description": "x" * 10_000})
    wordy = tool("n" * 200, description="d" * 10_000)
    many = [tool(f"t{number}") for number in range(MAX_TOOLS)]
    with caplog.at_level(logging.WARNING):
        found, _ = tool_specs("kitchen", SERVER, [large, wordy, *many])
    assert len(found) == MAX_TOOLS - 1
    assert (len(found[0].name), len(found[0].description)) == (64, 1000)
    assert len(caplog.records) == 2


def test_the_settings_can_select_tools() -> None:
    some = McpServerSettings(command="kitchen", tools=("b", "nowhere"))
    found, _ = tool_specs("kitchen", some, [tool("a"), tool("b")])
    assert [spec.name for spec in found] == ["b"]


def test_tools_whose_names_become_equal_are_reduced_to_one() -> None:
    found, names = tool_specs("kitchen", SERVER, [tool("a.b"), tool("a/b"), tool("")])
    assert ([spec.name for spec in found], names) == (["a_b"], {"a_b": "a.b"})


TEXT = {"type": "text", "text": "a cake"}
IMAGE = {"type": "image", "data": "", "mimeType": "image/png"}
LINK = {"type": "resource_link", "uri": "file:///cake", "name": "cake"}
RESOURCE = {"type": "resource", "resource": {"uri": "file:///cake", "text": "sweet"}}


@pytest.mark.parametrize(
    ("result", "outcome"),
    [
        ({"content": []}, ToolOutcome({"text": ""})),
        ({"content": [TEXT, TEXT]}, ToolOutcome({"text": "a cake\na cake"})),
        ({"content": [TEXT], "structuredContent": {"x": 1}}, ToolOutcome({"x": 1})),
        ({"content": [IMAGE, IMAGE]}, ToolOutcome({"left_out": "2 image"})),
        ({"content": [LINK, RESOURCE]}, ToolOutcome({"text": "file:///cake\nsweet"})),
        (
            {"content": [TEXT], "isError": True},
            ToolOutcome({"message": "a cake"}, error="tool_failed"),
        ),
        (
            {"content": [], "isError": True},
            ToolOutcome({"message": "it failed"}, error="tool_failed"),
        ),
    ],
)
def test_a_result_becomes_an_outcome(result: dict[str, Any], outcome: ToolOutcome) -> None:
    assert tool_outcome(CallToolResult.model_validate(result)) == outcome


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({}, "either command or url"),
        ({"command": "a", "url": "http://b"}, "either command or url"),
        ({"url": "ftp://b"}, "must start with http"),
        ({"url": "http://user:password@b"}, "use headers"),
        ({"url": "http://b", "args": ("c",)}, "only for servers with command"),
        ({"command": "a", "headers": {"b": "c"}}, "only for servers with url"),
    ],
)
def test_contradictory_settings_are_refused(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why) as refused:
        McpServerSettings(**fields)
    assert "password" not in str(refused.value).replace("user or password", "")


def test_secrets_are_masked() -> None:
    assert "hush" not in repr(SERVER)
    assert SERVER.masked("error: hush-hush is wrong") == "error: ******** is wrong"
