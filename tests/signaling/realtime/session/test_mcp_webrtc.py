"""MCP servers of WebRTC clients: the list of their tools fits the data channel."""

import json
from typing import Any

import pytest

from core.http.fetch_policy import HostAllowlist
from pipeline.shared.mcp_servers import ClientMcpPolicy
from tests.pipeline.tools.mcp.unresponsive_server import unresponsive
from tests.signaling.realtime.servers import Server, Setup, against
from tests.signaling.realtime.session.mcp_servers import RemoteWorld
from tests.signaling.realtime.webrtc_client import talking

pytestmark = pytest.mark.live

LEAST_TAKEN_BYTES = 64 * 1024
"The largest message for a data channel whose peer names no limit (RFC 8841 section 6.1)."


def test_a_list_of_long_tools_fits_every_channel() -> None:
    wordy: list[dict[str, Any]] = [
        {
            "name": f"{number:04}" + "n" * 120,
            "description": "ä" * 1000,
            "inputSchema": {"type": "object", "description": "x" * 2000},
        }
        for number in range(64)
    ]

    async def scene(server: Server) -> None:
        async with unresponsive(tools=wordy) as wordy_server, talking(server) as caller:
            host = f"127.0.0.1:{wordy_server.port}"
            tool = {"type": "mcp", "server_label": "w", "server_url": f"http://{host}/mcp"}
            session = {"type": "realtime", "tools": [tool]}
            caller.send(type="session.update", session=session)
            done = (await caller.expect("conversation.item.done"))[-1]
            assert len(done["item"]["tools"]) == 64
            assert done["item"]["tools"][0]["description"]
            assert len(json.dumps(done, ensure_ascii=False).encode()) < LEAST_TAKEN_BYTES

    policy = ClientMcpPolicy(HostAllowlist(["127.0.0.1"]))
    against(scene, Setup(world=RemoteWorld(policy=policy)))
