"""The tools that a client of MCP is offered, and their calls."""

import json
from collections.abc import AsyncGenerator, Callable, Collection, Mapping

from core.access.limits import CapacityLimit
from core.access.named_key import places_for_owner
from core.conversation.ids import new_id
from core.errors import OverloadedError
from core.ports import DeviceLocation, ToolContext, ToolOutcome, ToolSpec
from engines.base import ToolCall
from pipeline.conversation.conversation import Conversation, Conversations
from pipeline.tools.calls.results import as_json
from pipeline.tools.toolbox import Toolbox
from web.mcp.settings import McpDoorSettings

MAX_CALLS = 16
"""Most calls at the same time. A call that asks people a question may wait for minutes, so there
are more places than lamps need. One place stays free for the owner's key."""

RETRY_AFTER_S = 5

CONVERSATION = "mcp"
"""Id of the conversation that all calls of a key belong to, so that one session can stop the timer
that another one started."""


class OfferedTools:
    """The tools of the house as a client of MCP sees and calls them.

    A key sees the tools that its settings name, and without settings all that are offered.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        conversations: Conversations,
        settings: McpDoorSettings,
        tools_of_caller: Callable[[], Collection[str] | None],
    ) -> None:
        """tools_of_caller: returns the names of the tools that the caller's key may use; None:
        all."""
        self._toolbox, self._conversations = toolbox, conversations
        self._settings, self._tools_of_caller = settings, tools_of_caller
        self._places = CapacityLimit(
            MAX_CALLS,
            "{limit} calls run already, the limit",
            retry_after_s=RETRY_AFTER_S,
            code="server_full",
        )

    def listed(self) -> list[dict[str, object]]:
        """Returns the caller's tools in MCP's form."""
        return [_listed(spec) for spec in self._specs(self._conversation())]

    def has(self, name: str) -> bool:
        """Returns whether the caller may call this tool."""
        return any(spec.name == name for spec in self._specs(self._conversation()))

    async def call(self, name: str, arguments: Mapping[str, object]) -> dict[str, object]:
        """Calls a tool. A failure is a result, too: the client's model reads why."""
        conversation = self._conversation()
        allowed = {spec.name for spec in self._specs(conversation)}
        call = ToolCall(new_id("call"), name, arguments)
        try:
            with self._places.take(places_for_owner()), conversation.keep():
                context = self._context(conversation)
                (text,) = await self._toolbox.run([call], context, allowed)
        except OverloadedError as error:
            text = as_json(ToolOutcome({"message": str(error)}, error=error.code))
        data = json.loads(text)
        return {
            "content": [{"type": "text", "text": text}],
            "structuredContent": data,
            "isError": "error" in data,
        }

    async def changes(
        self, changed: Callable[[], AsyncGenerator[None, None]]
    ) -> AsyncGenerator[None, None]:
        """Yields whenever the list of the caller's tools has changed. changed: yields when it may
        have changed."""
        known = self.listed()
        async for _ in changed():
            if (now := self.listed()) != known:
                known = now
                yield

    def _specs(self, conversation: Conversation) -> list[ToolSpec]:
        specs = self._toolbox.specs(self._context(conversation), self._settings.allow)
        mine = self._tools_of_caller()
        return specs if mine is None else [spec for spec in specs if spec.name in mine]

    def _conversation(self) -> Conversation:
        conversation = self._conversations.get(CONVERSATION)
        conversation.place = DeviceLocation(area=self._settings.area)
        return conversation

    def _context(self, conversation: Conversation) -> ToolContext:
        return ToolContext(conversation.key, self._settings.language, conversation.place)


def _listed(spec: ToolSpec) -> dict[str, object]:
    return {
        "name": spec.name,
        "description": spec.description,
        "inputSchema": {"type": "object", **spec.parameters},
        "annotations": {"readOnlyHint": spec.is_read_only, "openWorldHint": False},
    }
