"""Settings that a response is made with, fixed before it begins.

Equal plans make equal responses.
"""

from dataclasses import dataclass

from core.conversation.events import DEFAULT_RESPONSE_PARAMETERS, Modality, ResponseParameters
from core.conversation.items import Item
from core.errors import EarshotError
from core.ports import ToolSpec
from engines.base import AS_CONFIGURED, Llm, LlmOptions, Tts
from pipeline.shared.settings import AS_FITS, DEFAULT, ContextTruncation, ToolChoice
from pipeline.shared.turn import Turn
from pipeline.speech.synthesis import SpeechPlan
from pipeline.speech.voices import VoiceChoice
from pipeline.tools.mcp.session_servers import SessionMcpOffer


@dataclass(frozen=True, slots=True)
class ResponsePlan:
    """Everything that a response is made with, except the prompt."""

    turn: Turn
    modality: Modality
    language: str
    instructions: str
    voice: str
    speed: float
    llm: Llm
    tts: Tts
    fallback_voice: VoiceChoice | None = None
    "A voice of another engine that speaks the language. It speaks the apology when `tts` fails."
    options: LlmOptions = AS_CONFIGURED
    tools: tuple[str, ...] | None = None
    "Names of the server's tools that may be used. None: all."
    client_tools: tuple[ToolSpec, ...] = ()
    mcp_offer: SessionMcpOffer | None = None
    "MCP servers that the client named. None: it named none."
    tool_choice: ToolChoice = "auto"
    truncation: ContextTruncation = AS_FITS
    input: tuple[Item, ...] | None = None
    "Items that the model sees in place of the conversation. None: the conversation."
    parameters: ResponseParameters = DEFAULT_RESPONSE_PARAMETERS
    text: str | None = None
    "Exact text to speak (an announcement). The language model is not asked."
    refusal: EarshotError | None = None
    """Error that the response fails with at once. The client asked for it and it cannot be made; a
    failed response tells the client not to wait."""

    @property
    def speech(self) -> SpeechPlan:
        """Voice, language and speed with which the response is spoken."""
        voice = None if self.voice == DEFAULT else self.voice
        return SpeechPlan(self.tts, self.language, voice, self.speed)
