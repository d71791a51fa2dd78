"""What all sessions of a server share."""

from dataclasses import dataclass, field

from core.ports import Clock, Metrics, TraceSink
from pipeline.conversation.instructions import NO_DEFAULT, DefaultInstructions
from pipeline.services import EngineSet
from pipeline.shared.mcp_servers import RemotePolicy
from pipeline.tools.toolbox import Toolbox
from serving.llm_slots import Budget


@dataclass(frozen=True, slots=True)
class Surroundings:
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
    drafts: Budget = field(default_factory=Budget)
    "Answers that are being made before their turn is over."
    instructions: DefaultInstructions = NO_DEFAULT
    "What language models are told where nobody else tells them anything."
    remote: RemotePolicy = field(default_factory=RemotePolicy)
    "Which MCP servers clients may name."
