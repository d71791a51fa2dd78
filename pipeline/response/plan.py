"""What an answer is made with, fixed before it begins. Equal plans make the same answer."""

from dataclasses import dataclass

from core.errors import EarshotError
from core.events import DEFAULT_RESPONSE_PARAMETERS, Modality, ResponseParameters
from core.items import Item
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, Llm, LlmOptions, Tts
from pipeline.shared.settings import AS_FITS, ContextTruncation, ToolChoice
from pipeline.shared.turn import Turn
from pipeline.speech.voices import VoiceChoice
from pipeline.tools.mcp.session_servers import SessionMcpOffer


@dataclass(frozen=True, slots=True)
class ResponsePlan:
    turn: Turn
    modality: Modality
    language: str
    instructions: str
    voice: str
    speed: float
    llm: Llm
    tts: Tts
    spare: VoiceChoice | None = None
    "Another engine that speaks the language; it apologises where `tts` fails."
    options: LlmOptions = AS_CONFIGURED
    tools: tuple[str, ...] | None = None
    "Names of those that may be used; None: all."
    client_tools: tuple[ToolSpec, ...] = ()
    remote: SessionMcpOffer | None = None
    "MCP servers that the client named; None: none."
    tool_choice: ToolChoice = "auto"
    truncation: ContextTruncation = AS_FITS
    input: tuple[Item, ...] | None = None
    "What the model sees in place of the conversation."
    terms: ResponseParameters = DEFAULT_RESPONSE_PARAMETERS
    text: str | None = None
    "Say exactly this (an announcement); the language model is not asked."
    refusal: EarshotError | None = None
    "It was asked for and cannot be given: it fails with this, so that nobody waits for it."
