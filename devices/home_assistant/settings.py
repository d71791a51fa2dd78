"""Where Home Assistant is, and how it is spoken to."""

from dataclasses import dataclass, field

BUILT_IN_AGENT = "conversation.home_assistant"
"Home Assistant's own sentences: an agent that is us would ask us again, without end."


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeAssistantSettings:
    url: str
    "Its address as a browser has it, without a path."
    token: str = field(repr=False)
    verify_tls: bool = True
    agent_id: str = BUILT_IN_AGENT
    language: str = ""
    "In which it is spoken to; empty: the one that the user speaks."
    timeout_s: float = 8.0
    "How long a sentence may take."
    refresh_s: float = 900.0
    "Names are fetched again after this, beside whenever it tells that they changed."

    @property
    def websocket_url(self) -> str:
        return f"{self.url.rstrip('/')}/api/websocket".replace("http", "ws", 1)

    @property
    def headers(self) -> dict[str, str]:
        """Of requests over HTTP."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def conversation_url(self) -> str:
        return f"{self.url.rstrip('/')}/api/conversation/process"
