"""Tools that the client runs, beside the server's: which are offered, and whose a call is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from core.errors import RequestError
from core.ports import ToolContext, ToolSpec
from engines.base import LlmOptions, ToolCall
from pipeline.plan import AnswerPlan
from pipeline.settings import NamedTool
from pipeline.tools import Toolbox


@dataclass(frozen=True, slots=True)
class Offer:
    """The tools of one round, as a model is offered them."""

    specs: tuple[ToolSpec, ...]
    options: LlmOptions
    server: frozenset[str]
    client: frozenset[str]

    def parted(self, calls: Sequence[ToolCall]) -> tuple[list[ToolCall], list[ToolCall]]:
        """Calls that the server runs, and those for the client. A call of what was not offered is
        the server's, to be refused."""
        of_client = [call for call in calls if call.name in self.client]
        return [call for call in calls if call.name not in self.client], of_client


def offer(plan: AnswerPlan, toolbox: Toolbox, context: ToolContext, *, is_first: bool) -> Offer:
    """The tool choice counts for the first round: a model that must call a tool again and again
    would never answer. A client's tool hides one of the server's with its name. Raises RequestError
    no_such_tool."""
    choice = plan.tool_choice
    if choice == "none":
        return Offer((), plan.options, frozenset(), frozenset())
    own = {spec.name for spec in plan.client_tools}
    specs = [spec for spec in toolbox.specs(context, plan.tools) if spec.name not in own]
    specs += plan.client_tools
    if isinstance(choice, NamedTool) and is_first:
        specs = [spec for spec in specs if spec.name == choice.name]
        if not specs:
            raise RequestError(f"there is no tool {choice.name!r} to choose", code="no_such_tool")
    options = replace(plan.options, must_call=is_first and choice != "auto" and bool(specs))
    names = frozenset(spec.name for spec in specs)
    return Offer(tuple(specs), options, names - own, names & own)
