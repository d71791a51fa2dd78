"""What all sessions of a server share."""

from dataclasses import dataclass, field

from core.ports import Clock, Metrics, TraceSink
from pipeline.conversation.instructions import NO_DEFAULT, DefaultInstructions
from pipeline.services import EngineSet
from pipeline.shared.mcp_servers import ClientMcpPolicy
from pipeline.tools.toolbox import Toolbox
from serving.llm_slots import DraftBudget


@dataclass(frozen=True, slots=True)
class SessionServices:
    """Stateless model calls, tools, clock, metrics; nothing of any one session."""

    engines: EngineSet
    toolbox: Toolbox
    clock: Clock
    metrics: Metrics
    trace: TraceSink | None = None
    traces_words: bool = False
    traces_sound: bool = False
    "Also what was heard, for `earshot replay`; private, so off by itself."
    logs_words: bool = False
    "Whether the logger `transcripts` gets what was heard and said; private, so off by itself."
    drafts: DraftBudget = field(default_factory=DraftBudget)
    "Answers that are being made before their turn is over."
    instructions: DefaultInstructions = NO_DEFAULT
    "What language models are told where nobody else tells them anything."
    remote: ClientMcpPolicy = field(default_factory=ClientMcpPolicy)
    "Which MCP servers clients may name."
