"""Settings of the connection to Home Assistant."""

from dataclasses import dataclass, field

BUILT_IN_AGENT = "conversation.home_assistant"
"""Home Assistant's own sentence matching. An agent that uses Earshot would ask us again, in an
endless loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeAssistantSettings:
    """Address, token and limits of the connection to Home Assistant."""

    url: str
    "Address of Home Assistant as in a browser, without a path."
    token: str = field(repr=False)
    verify_tls: bool = True
    agent_id: str = BUILT_IN_AGENT
    language: str = ""
    "Language of the sentences that are sent; empty: the language of the user."
    timeout_s: float = 8.0
    "Limit for one sentence, in seconds."
    refresh_s: float = 900.0
    "Interval in seconds after which names are read again, in addition to each reported change."

    @property
    def websocket_url(self) -> str:
        return f"{self.url.rstrip('/')}/api/websocket".replace("http", "ws", 1)

    @property
    def headers(self) -> dict[str, str]:
        """Headers of HTTP requests."""
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def conversation_url(self) -> str:
        return f"{self.url.rstrip('/')}/api/conversation/process"
