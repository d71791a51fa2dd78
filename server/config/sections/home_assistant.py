"""Section `[home_assistant]`: the Home Assistant that controls the house."""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from msgspec import Meta

from core.errors import ConfigError
from devices.home_assistant.settings import BUILT_IN_AGENT, HomeAssistantSettings
from pipeline.tools.mcp import McpServerSettings
from server.config.types import Section
from server.net.addresses import address_of

OWN_AGENT_ID = "conversation.earshot"
"Id of Earshot in Home Assistant, if Earshot is its conversation agent."

MCP_PATH = "/api/mcp"
"Path of Home Assistant's MCP server."
MCP_SSE_PATH = "/mcp_server/sse"
"Path of the MCP server in versions before about 2025.8, which lack the other one."


class HomeAssistantConfig(Section, frozen=True):
    """Settings of the Home Assistant that gets the user's commands for the house."""

    url: Annotated[
        str,
        Meta(
            description=(
                "Address of Home Assistant, like http://homeassistant.local:8123. Empty: the"
                " demo home is used."
            )
        ),
    ] = ""
    token: Annotated[
        str,
        Meta(
            description=(
                "Long-lived access token, from the profile of the user whose rights Earshot gets."
            )
        ),
    ] = ""
    token_file: Annotated[
        str, Meta(description="File that contains the token, instead of token.")
    ] = ""
    verify_tls: Annotated[
        bool,
        Meta(
            description=(
                "Whether to verify the certificate of Home Assistant. False accepts any, such as a"
                " self-signed one."
            )
        ),
    ] = True
    use: Annotated[
        Literal["conversation", "tools"],
        Meta(
            description=(
                "Control of Home Assistant by a language model: by sentences to its conversation"
                " agent (conversation), or also by the tools of its MCP server, which needs an"
                " integration there (tools). Recognised commands are always sent as sentences."
            )
        ),
    ] = "conversation"
    agent_id: Annotated[
        str,
        Meta(
            min_length=1,
            description=(
                "Id of the conversation agent in Home Assistant that receives the sentences."
            ),
        ),
    ] = BUILT_IN_AGENT
    language: Annotated[
        str,
        Meta(
            description="Language of the sentences for Home Assistant. Empty: the user's language."
        ),
    ] = ""
    timeout_s: Annotated[
        float,
        Meta(
            ge=0.5,
            le=60,
            description="Seconds that Home Assistant may take to answer a sentence.",
        ),
    ] = 8.0
    keywords: Annotated[
        int,
        Meta(
            ge=0,
            le=200,
            description=(
                "Maximum number of area and device names that the recogniser of every session gets"
                " as hints."
            ),
        ),
    ] = 40

    ingress_port: Annotated[
        int,
        Meta(
            ge=0,
            le=65_535,
            description=(
                "Port for Home Assistant's ingress, if Earshot runs as its add-on; 0: none."
                " Requests there need no key, because Home Assistant has checked the user."
            ),
        ),
    ] = 0
    ingress_proxy: Annotated[
        str, Meta(description="Address of Home Assistant's ingress: no other may use that port.")
    ] = "172.30.32.2"

    def __post_init__(self) -> None:
        if self.ingress_port and address_of(self.ingress_proxy) is None:
            raise ConfigError("home_assistant.ingress_proxy: must be an IP address")
        try:
            parts = urlsplit(self.url)
            _ = parts.port
        except ValueError as error:
            raise ConfigError(f"home_assistant.url: not a valid URL: {error}") from None
        if self.url and (parts.scheme not in ("http", "https") or not parts.hostname):
            raise ConfigError("home_assistant.url: must start with http:// or https:// and a host")
        if "@" in parts.netloc:
            raise ConfigError("home_assistant.url: must not contain a user or password; use token")
        if self.token and self.token_file:
            raise ConfigError("home_assistant: set either token or token_file, not both")
        if self.agent_id == OWN_AGENT_ID:
            raise ConfigError(
                f"home_assistant.agent_id: {OWN_AGENT_ID} is this server, which cannot send"
                " sentences to itself"
            )

    def as_settings(self) -> HomeAssistantSettings:
        """Returns the settings in the client's form. Reads the token's file. Raises ConfigError."""
        return HomeAssistantSettings(
            url=self.url.rstrip("/"),
            token=self._token(),
            verify_tls=self.verify_tls,
            agent_id=self.agent_id,
            language=self.language,
            timeout_s=self.timeout_s,
        )

    def as_mcp_server(self) -> McpServerSettings:
        """Returns Home Assistant's MCP server in the form of `[tools.mcp]`. Raises ConfigError."""
        return McpServerSettings(
            url=self.url.rstrip("/") + MCP_PATH,
            sse_url=self.url.rstrip("/") + MCP_SSE_PATH,
            headers={"Authorization": f"Bearer {self._token()}"},
            verify_tls=self.verify_tls,
        )

    def _token(self) -> str:
        """Returns the token, from the setting or the file. Raises ConfigError if there is none."""
        token = self.token
        if self.token_file:
            try:
                token = Path(self.token_file).expanduser().read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                reason = getattr(error, "strerror", None) or "not text"
                raise ConfigError(
                    f"home_assistant.token_file: {self.token_file}: {reason}"
                ) from error
        if not token.strip():
            raise ConfigError("home_assistant.token: required, because home_assistant.url is set")
        return token.strip()
