"""The MCP servers of one answer. Equal ones offer the same."""

from dataclasses import dataclass

from pipeline.shared.mcp_servers import ClientMcpServer
from pipeline.shared.settings import ResponseRequest
from pipeline.tools.mcp.session_servers import SessionMcpServers
from pipeline.tools.mcp.tool import ApprovalDecision, ClientMcpTool


@dataclass(frozen=True, slots=True)
class SessionMcpOffer:
    servers: SessionMcpServers
    named: tuple[ClientMcpServer, ...]
    request: ResponseRequest
    "How the answer was asked for."

    @property
    def approved(self) -> tuple[ApprovalDecision, ...]:
        """Calls to be made, or not, before the model is asked."""
        return self.request.approved

    async def ready(self) -> None:
        """Servers of the session hold up no answer, its own ones do."""
        if self.request.mcp_servers is not None:
            await self.servers.ready(self.named)

    def tools(self) -> list[ClientMcpTool]:
        """Out of band there is no conversation in which the client could allow anything."""
        may_ask = self.request.in_conversation
        tools = self.servers.tools(self.named)
        return [one for one in tools if may_ask or not one.needs_approval]
