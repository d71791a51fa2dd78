"""Keeps the calls that wait for the client's approval, and requests the response that follows."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from core.conversation.items import McpApprovalResponseItem
from core.errors import Conflict
from engines.base import ToolCall
from pipeline.shared.settings import ResponseRequest
from pipeline.tools.mcp.tool import ApprovalDecision, ClientMcpTool

MAX_WAITING = 64
"Most waiting calls of one session. If there are more, the oldest can no longer be approved."


@dataclass(slots=True)
class _ApprovalRound:
    """Calls of one response that need approval. The next response begins when all are decided."""

    request: ResponseRequest
    "Request of that response."
    waiting: set[str] = field(default_factory=set[str])
    "Ids of the open approval requests."
    decided: list[ApprovalDecision] = field(default_factory=list[ApprovalDecision])


class Approvals:
    """Open approval requests of one session."""

    def __init__(self) -> None:
        self._waiting: dict[str, tuple[_ApprovalRound, ToolCall, ClientMcpTool]] = {}
        "Waiting calls by the id of their approval request."
        self._rounds: dict[str, _ApprovalRound] = {}
        "Rounds by the id of the response that asks."

    def ask(
        self,
        request_id: str,
        response_id: str,
        request: ResponseRequest,
        call: ToolCall,
        tool: ClientMcpTool,
    ) -> None:
        """Adds a call that needs approval.

        request_id: id of the approval request's item. response_id: the response that asks.
        request: request of that response; the response after the decision has the same parameters.
        """
        round_ = self._rounds.setdefault(response_id, _ApprovalRound(request))
        round_.waiting.add(request_id)
        self._waiting[request_id] = round_, call, tool
        if len(self._waiting) > MAX_WAITING:
            self._forget(next(iter(self._waiting)))

    def decide(self, item: McpApprovalResponseItem) -> Callable[[], ResponseRequest | None]:
        """Checks a decision, and returns a function that stores it.

        That function returns the request of the response that follows, or None while other calls of
        the round are undecided. Raises Conflict mcp_approval_not_pending.
        """
        request_id = item.approval_request_id
        if request_id not in self._waiting:
            raise Conflict(
                f"no tool call waits for approval {request_id!r} in this session: it is already"
                " decided, or belongs to another session",
                code="mcp_approval_not_pending",
                param="item.approval_request_id",
            )

        def take() -> ResponseRequest | None:
            round_, call, tool = self._waiting.pop(request_id)
            round_.waiting.discard(request_id)
            reason = item.reason or ""
            round_.decided.append(ApprovalDecision(request_id, call, tool, item.approve, reason))
            if round_.waiting:
                return None
            self._rounds = {
                key: known for key, known in self._rounds.items() if known is not round_
            }
            return replace(round_.request, approved=tuple(round_.decided))

        return take

    def _forget(self, request_id: str) -> None:
        round_, *_ = self._waiting.pop(request_id)
        round_.waiting.discard(request_id)
        if not (round_.waiting or round_.decided):
            self._rounds = {
                key: known for key, known in self._rounds.items() if known is not round_
            }
