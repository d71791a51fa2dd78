"""Declares every setting: its type, range, default and description. The descriptions are data
(`Meta.description`), because `earshot config` prints them. `server/config/load.py` reads the
values."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from core.ip_addresses import IpNetwork
from pipeline.tools.home.config import HomeConfig
from pipeline.transcription.no_speech import NoSpeechMode
from server.config.sections.assistant import AssistantConfig
from server.config.sections.devices import DevicesConfig
from server.config.sections.home_assistant import HomeAssistantConfig
from server.config.sections.ice import IceConfig
from server.config.sections.realtime import PromptConfig, PromptId, RealtimeConfig
from server.config.sections.tools import ToolsConfig
from server.config.sections.turn import TurnConfig
from server.config.sections.willow import WillowConfig
from server.config.sections.wyoming import WyomingConfig
from server.config.sections.xiaozhi import XiaozhiConfig
from server.config.types import PLUGIN_NAME, Section
from server.net.addresses import is_loopback
from server.net.allowlist import networks_of
from server.runtime.state_dir import KEY_CHARS, KEY_PATTERN

NameList = tuple[str, ...]


class ServerConfig(Section, frozen=True):
    """Settings of the main listener: addresses, access and limits."""

    host: Annotated[
        str,
        Meta(min_length=1, description="Address to listen on; any but loopback requires the key."),
    ] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    ] = 8080
    tls: Annotated[
        str,
        Meta(
            pattern="^(off|auto|[^:]+:[^:]+)$",
            title="off, auto or CERT.pem:KEY.pem",
            description=(
                "HTTPS; auto makes a self-signed certificate, so that browsers on the LAN give the"
                " microphone."
            ),
        ),
    ] = "off"
    api_key: Annotated[
        str,
        Meta(
            pattern=rf"^({KEY_PATTERN})?$",
            title=KEY_CHARS,
            description="The key callers must send; empty: made at need and kept in state_dir.",
        ),
    ] = ""
    require_key: Annotated[
        bool,
        Meta(
            description=(
                "Programs and pages of this machine need the key, too, and its devices approval:"
                " for a server behind a proxy or a forwarded port. It is so, too, where api_key or"
                " allowed_hosts is set, but for Home Assistant over Wyoming."
            )
        ),
    ] = False
    allowed_hosts: Annotated[
        NameList,
        Meta(
            description=(
                "Further names in the Host header, e.g. behind a reverse proxy; this machine's own"
                " names and all IP addresses are always known."
            )
        ),
    ] = ()
    allowed_origins: Annotated[
        NameList,
        Meta(
            description=(
                'Web sites that may use the API from a browser, always with the key; "*" is any.'
            )
        ),
    ] = ("*",)
    max_sessions: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description=(
                "Sessions at once; the next one is told to wait. The last place is the owner's:"
                " with 1, client secrets open none."
            ),
        ),
    ] = 32
    max_connections_per_address: Annotated[
        int,
        Meta(
            ge=8,
            le=1_000_000,
            description=(
                "Connections that one address (of IPv6 one /64 network of the internet) may hold,"
                " over all ports; more are closed at once."
                " This machine and trusted_proxies may hold any number."
            ),
        ),
    ] = 256  # a browser holds six; the clients of a house behind one address some dozens
    trusted_proxies: Annotated[
        NameList,
        Meta(
            title="list of addresses or networks like 10.0.0.2 or 172.18.0.0/16",
            description="Reverse proxies elsewhere, which hold the connections of many clients.",
        ),
    ] = ()
    max_body_bytes: Annotated[
        int,
        Meta(ge=65_536, le=2**31, description="Largest request body; larger ones get 413."),
    ] = 2**20
    max_upload_bytes: Annotated[
        int,
        Meta(
            ge=2**20, le=2**31, description="Largest audio file to transcribe; larger ones get 413."
        ),
    ] = 100 * 2**20  # three hours of 64 kbit/s speech, or 50 minutes of 16 kHz WAV
    drain_timeout_s: Annotated[
        float,
        Meta(ge=0, le=600, description="How long running turns may finish after SIGTERM."),
    ] = 8.0  # shorter than the 10 s after which `docker stop` kills
    idle_timeout_s: Annotated[
        float,
        Meta(
            ge=5,
            le=86_400,
            description=(
                "A WebSocket without any event or audio ends after this; a call over WebRTC, whose"
                " audio never stops, after an hour without an event or speech."
            ),
        ),
    ] = 600.0

    def __post_init__(self) -> None:
        self.proxies()

    def proxies(self) -> tuple[IpNetwork, ...]:
        """Returns this machine's networks and those of the trusted proxies. Raises ConfigError."""
        return networks_of(self.trusted_proxies, "server.trusted_proxies")

    @property
    def needs_key_here(self) -> bool:
        """True if clients on this machine need the key too."""
        return self.require_key or bool(self.api_key) or bool(self.allowed_hosts)

    @property
    def trusts_this_machine(self) -> bool:
        """True if programs of this machine need no key, so that its devices need no approval."""
        return is_loopback(self.host) and not self.needs_key_here


class PathsConfig(Section, frozen=True):
    """Folders of the server."""

    models_dir: Annotated[
        str, Meta(min_length=1, description="Folder of model weights, one folder per model.")
    ] = "models"
    state_dir: Annotated[
        str,
        Meta(min_length=1, description="Folder for the key and certificate; readable by you only."),
    ] = "~/.local/state/earshot"


class EngineConfig(Section, frozen=True):
    """Settings of one kind of engine."""

    engine: Annotated[
        str,
        Meta(
            min_length=1,
            description="auto, or the name of an engine (`earshot doctor` lists them).",
        ),
    ] = "auto"
    options: Annotated[
        dict[str, Any], Meta(description="The engine's own settings; checked by the engine.")
    ] = field(default_factory=dict)


class AsrConfig(EngineConfig, frozen=True):
    """Settings of speech recognition. One model is loaded at start; clients may name others."""

    model: Annotated[
        str,
        Meta(
            min_length=1,
            description=(
                "auto, or the model to load at start: a folder of models_dir, its short name (tiny,"
                " large-v3-turbo), pocketsphinx, or the path of a folder."
            ),
        ),
    ] = "auto"
    preload: Annotated[
        NameList,
        Meta(
            description=(
                "Further models to load at start; others are loaded when they are first asked for."
            )
        ),
    ] = ()
    memory_mb: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000_000,
            description=(
                "Megabytes that loaded models may take, on the GPU where they run there; the one"
                " idle longest is unloaded for another. 0: half of what the machine has."
            ),
        ),
    ] = 0
    no_speech: Annotated[
        NoSpeechMode,
        Meta(
            description=(
                "Noise that was taken for words: off keeps all of it; normal drops what the model"
                " itself doubts; strict drops also what voice activity detection doubts. Requests"
                " may say otherwise (no_speech_threshold)."
            )
        ),
    ] = "normal"
    workers: Annotated[
        int,
        Meta(
            ge=0,
            le=64,
            description=(
                "Processes that run the model loaded at start; each takes its own memory. 0: as"
                " suits the machine."
            ),
        ),
    ] = 0


class ModelsConfig(Section, frozen=True):
    """Settings of model names in requests."""

    strict: Annotated[
        bool,
        Meta(
            description=(
                "Whether an unknown model is an error (404), which lists those that there are; off:"
                " any name means the server's own choice. Names of the hosted service always do."
            )
        ),
    ] = True


class LogConfig(Section, frozen=True):
    """Settings of the log on standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least level that is shown.")
    ] = "info"
    json: Annotated[bool, Meta(description="One JSON object per line instead of text.")] = False
    transcripts: Annotated[
        bool, Meta(description="Log what was said and answered; off, because it is private.")
    ] = False


class TraceConfig(Section, frozen=True):
    """Settings of the trace, a record of every session for replay."""

    path: Annotated[
        str,
        Meta(description="JSONL file to append every session's events to; empty: no trace."),
    ] = ""
    transcripts: Annotated[
        bool, Meta(description="Also write what was said and answered; off, because it is private.")
    ] = False
    audio: Annotated[
        bool,
        Meta(
            description=(
                "Also write what each session hears, at most ten minutes of it, for `earshot"
                " replay`; off, because it is private."
            )
        ),
    ] = False


class Config(Section, frozen=True):
    """All settings, as one TOML file holds them."""

    language: Annotated[
        str,
        Meta(
            pattern="^[a-z]{2,3}$",
            title="a language code like 'en'",
            description="Language (ISO 639-1) of sessions that do not say theirs.",
        ),
    ] = "en"
    server: ServerConfig = ServerConfig()
    paths: PathsConfig = PathsConfig()
    vad: EngineConfig = EngineConfig()
    wake: EngineConfig = EngineConfig()
    endpoint: EngineConfig = EngineConfig()
    asr: AsrConfig = AsrConfig()
    models: ModelsConfig = ModelsConfig()
    llm: EngineConfig = EngineConfig()
    tts: EngineConfig = EngineConfig()
    turn: TurnConfig = TurnConfig()
    assistant: AssistantConfig = AssistantConfig()
    tools: ToolsConfig = ToolsConfig()
    realtime: RealtimeConfig = RealtimeConfig()
    prompts: Annotated[
        dict[PromptId, PromptConfig],
        Meta(
            title="tables with text",
            description="Prompts by id, each with text, version, former: clients may name them.",
        ),
    ] = field(default_factory=dict)
    ice: IceConfig = IceConfig()
    devices: DevicesConfig = DevicesConfig()
    willow: WillowConfig = WillowConfig()
    wyoming: WyomingConfig = WyomingConfig()
    xiaozhi: XiaozhiConfig = XiaozhiConfig()
    home_assistant: HomeAssistantConfig = HomeAssistantConfig()
    doors: Annotated[
        dict[Annotated[str, Meta(pattern=PLUGIN_NAME)], dict[str, Any]],
        Meta(
            title="tables with settings",
            description=(
                "Doors of other packages by the name that the package gives them, each with its"
                " own settings; `earshot doctor` lists those that are installed."
            ),
        ),
    ] = field(default_factory=dict)
    home: Annotated[
        HomeConfig | None,
        Meta(
            title="table with areas and entities",
            description="The demo home's areas and devices; not set: the bundled one.",
        ),
    ] = None
    log: LogConfig = LogConfig()
    trace: TraceConfig = TraceConfig()
