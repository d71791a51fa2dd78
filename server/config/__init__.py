"""Declares every setting: its type, range, default and description. The descriptions are data
(`Meta.description`), because `earshot config` prints them. `server/config/load.py` reads the
values."""

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from core.net.ip_addresses import IpNetwork
from pipeline.tools.home.config import HomeConfig
from pipeline.transcription.no_speech import NoSpeechMode
from server.config.sections.assistant import AssistantConfig
from server.config.sections.cluster import ClusterConfig
from server.config.sections.devices import DevicesConfig
from server.config.sections.esphome import EspHomeConfig
from server.config.sections.home_assistant import HomeAssistantConfig
from server.config.sections.ice import IceConfig
from server.config.sections.ingrain import IngrainConfig
from server.config.sections.kserve import KserveConfig
from server.config.sections.limits import LimitsConfig
from server.config.sections.machines import MachinesConfig
from server.config.sections.mcp_server import McpServerConfig
from server.config.sections.mqtt import MqttConfig
from server.config.sections.realtime import PromptConfig, PromptId, RealtimeConfig
from server.config.sections.speakers import SpeakersConfig
from server.config.sections.telephone import TelephoneConfig
from server.config.sections.tools import ToolsConfig
from server.config.sections.tts import OwnVoicesConfig
from server.config.sections.turn import TurnConfig
from server.config.sections.willow import WillowConfig
from server.config.sections.wyoming import WyomingConfig
from server.config.sections.xiaozhi import XiaozhiConfig
from server.config.types import PLUGIN_NAME, Section
from server.net.addresses import is_loopback
from server.net.allowlist import networks_of
from server.runtime.state_dir import KEY_CHARS, KEY_PATTERN
from serving.cluster.settings import PoolKind
from serving.remote.settings import RemoteModelSettings

NameList = tuple[str, ...]


class ServerConfig(Section, frozen=True):
    """Settings of the main listener: addresses, access and limits."""

    host: Annotated[
        str,
        Meta(
            min_length=1,
            description="Address to listen on. Any address but loopback requires the key.",
        ),
    ] = "127.0.0.1"
    port: Annotated[
        int, Meta(ge=0, le=65535, description="Port to listen on. 0: any free port.")
    ] = 8080
    tls: Annotated[
        str,
        Meta(
            pattern="^(off|auto|[^:]+:[^:]+)$",
            title="off, auto or CERT.pem:KEY.pem",
            description=(
                "Whether to serve HTTPS, and with which certificate. auto makes a self-signed one,"
                " because browsers on other machines allow the microphone only over HTTPS."
            ),
        ),
    ] = "off"
    api_key: Annotated[
        str,
        Meta(
            pattern=rf"^({KEY_PATTERN})?$",
            title=KEY_CHARS,
            description=(
                "API key that clients must send. Empty: the server makes one when it needs it and"
                " keeps it in state_dir."
            ),
        ),
    ] = ""
    require_key: Annotated[
        bool,
        Meta(
            description=(
                "Whether programs and pages on this machine also need the key, and its devices"
                " approval. Set it behind a proxy or a forwarded port. Setting api_key or"
                " allowed_hosts has the same effect, except for Home Assistant over Wyoming."
            )
        ),
    ] = False
    allowed_hosts: Annotated[
        NameList,
        Meta(
            description=(
                "Additional host names that the Host header may have, e.g. behind a reverse proxy."
                " This machine's own names and all IP addresses are always accepted."
            )
        ),
    ] = ()
    allowed_origins: Annotated[
        NameList,
        Meta(
            description=(
                "Origins of web sites that may use the API from a browser, always with the"
                ' key. "*": any site.'
            )
        ),
    ] = ("*",)
    max_sessions: Annotated[
        int,
        Meta(
            ge=1,
            le=10_000,
            description=(
                "Maximum number of simultaneous sessions; further clients are asked to retry"
                " later. One session is reserved for the owner of the key: with 1, client secrets"
                " cannot open any."
            ),
        ),
    ] = 32
    gateways: Annotated[
        int,
        Meta(
            ge=0,
            le=64,
            description=(
                "Number of processes that share the work of calls and requests on this address,"
                " each with models of its own. 0: one for every two processor cores."
            ),
        ),
    ] = 1
    rolling_wait_s: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            description=(
                "Seconds that a gateway which is replaced waits for its calls to end. Only with"
                " several gateways."
            ),
        ),
    ] = 600.0
    max_connections_per_address: Annotated[
        int,
        Meta(
            ge=8,
            le=1_000_000,
            description=(
                "Maximum number of connections from one address, over all ports. An IPv6 /64"
                " network of the internet counts as one address. Further connections are closed at"
                " once. This machine and trusted_proxies have no limit."
            ),
        ),
    ] = 256  # a browser holds six; the clients of a house behind one address some dozens
    trusted_proxies: Annotated[
        NameList,
        Meta(
            title="list of addresses or networks like 10.0.0.2 or 172.18.0.0/16",
            description=(
                "Reverse proxies on other machines, which hold the connections of many clients."
            ),
        ),
    ] = ()
    max_body_bytes: Annotated[
        int,
        Meta(
            ge=65_536,
            le=2**31,
            description="Largest request body in bytes; a larger one gets status 413.",
        ),
    ] = 2**20
    max_upload_bytes: Annotated[
        int,
        Meta(
            ge=2**20,
            le=2**31,
            description=(
                "Largest audio file to transcribe, in bytes; a larger one gets status 413."
            ),
        ),
    ] = 100 * 2**20  # three hours of 64 kbit/s speech, or 50 minutes of 16 kHz WAV
    drain_timeout_s: Annotated[
        float,
        Meta(ge=0, le=600, description="Seconds that running turns have to finish after SIGTERM."),
    ] = 8.0  # shorter than the 10 s after which `docker stop` kills
    idle_timeout_s: Annotated[
        float,
        Meta(
            ge=5,
            le=86_400,
            description=(
                "Seconds after which a WebSocket without any event or audio is closed. A WebRTC"
                " call, whose audio never stops, ends after an hour without an event or speech."
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
        str, Meta(min_length=1, description="Folder of model weights, with one folder per model.")
    ] = "models"
    state_dir: Annotated[
        str,
        Meta(
            min_length=1,
            description="Folder for the key and the certificate. Only its owner can read it.",
        ),
    ] = "~/.local/state/earshot"


class EngineConfig(Section, frozen=True):
    """Settings of one kind of engine."""

    engine: Annotated[
        str,
        Meta(
            min_length=1,
            description="Name of an engine (`earshot doctor` lists them), or auto.",
        ),
    ] = "auto"
    options: Annotated[
        dict[str, Any],
        Meta(description="Settings of the engine itself; the engine checks them."),
    ] = field(default_factory=dict)


class LlmConfig(EngineConfig, frozen=True):
    """Settings of the language model."""

    pool: Annotated[
        PoolKind,
        Meta(
            description=(
                "Where a language model with weights of its own runs. process: in a child process"
                " of this server. ray: on the cluster of the section cluster."
            ),
        ),
    ] = "process"


class TtsConfig(EngineConfig, frozen=True):
    """Settings of the voices."""

    pool: Annotated[
        PoolKind,
        Meta(
            description=(
                "Where the voice engine runs. process: in a child process of this server. ray: on"
                " the cluster of the section cluster."
            ),
        ),
    ] = "process"
    own_voices: OwnVoicesConfig = OwnVoicesConfig()


class AsrConfig(EngineConfig, frozen=True):
    """Settings of speech recognition. One model is loaded at start; clients may name others."""

    model: Annotated[
        str,
        Meta(
            min_length=1,
            description=(
                "Model to load at start: a folder in models_dir, its short name (tiny,"
                " large-v3-turbo), pocketsphinx, the path of a folder, or auto."
            ),
        ),
    ] = "auto"
    preload: Annotated[
        NameList,
        Meta(
            description=(
                "Additional models to load at start. Other models are loaded when a request"
                " first names them."
            )
        ),
    ] = ()
    memory_mb: Annotated[
        int,
        Meta(
            ge=0,
            le=10_000_000,
            description=(
                "Megabytes of memory that loaded models may use, on the GPU if they run there."
                " When another model needs room, the one that was idle longest is unloaded. 0:"
                " half of what is installed."
            ),
        ),
    ] = 0
    no_speech: Annotated[
        NoSpeechMode,
        Meta(
            description=(
                "Filter for words that were recognised in noise: off keeps all of them;"
                " normal drops those that the model itself doubts; strict also drops those that"
                " voice activity detection doubts. A request can override this with"
                " no_speech_threshold."
            )
        ),
    ] = "normal"
    workers: Annotated[
        int,
        Meta(
            ge=0,
            le=64,
            description=(
                "Number of processes that run the model loaded at start. Each uses its own memory."
                " 0: chosen for the machine."
            ),
        ),
    ] = 0
    pool: Annotated[
        PoolKind,
        Meta(
            description=(
                "Where the recognisers run. process: in child processes of this server. ray: on the"
                " cluster of the section cluster."
            ),
        ),
    ] = "process"


class ModelsConfig(Section, frozen=True):
    """Settings of models that requests name, and of their time in memory."""

    strict: Annotated[
        bool,
        Meta(
            description=(
                "True: an unknown model name is an error (404) that lists the known ones. False:"
                " an unknown name means the server's default model. Names of OpenAI's service"
                " always mean the default model."
            )
        ),
    ] = True
    pool: Annotated[
        PoolKind,
        Meta(
            description=(
                "Where models for embeddings and reranking run. process: in child processes of this"
                " server. ray: on the cluster of the section cluster."
            ),
        ),
    ] = "process"
    preload: Annotated[
        NameList,
        Meta(
            description=(
                "Models of any kind to load at start, besides the default ones. Others are loaded"
                " when a request first names them."
            )
        ),
    ] = ()
    catalogue: Annotated[
        str,
        Meta(
            description=(
                "TOML file with models and names in addition to the known ones. Empty: models.toml"
                " beside the configuration file, if it is there."
            )
        ),
    ] = ""
    unload_after_s: Annotated[
        float,
        Meta(
            ge=0,
            le=7 * 24 * 3600,
            description=(
                "Seconds without a use after which a model is unloaded. The default models and"
                " pinned ones stay. 0: a model stays until another one needs its memory."
            ),
        ),
    ] = 0.0
    image_hosts: Annotated[
        tuple[str, ...],
        Meta(
            title="list of names or addresses, with :port if wished",
            description=(
                "Hosts from which images are fetched if a request for embeddings names their"
                " address. Empty: images must be part of the request."
            ),
        ),
    ] = ()


class HistoryConfig(Section, frozen=True):
    """Settings of the conversations that persons keep on the server."""

    days: Annotated[
        int,
        Meta(
            ge=0,
            le=365,
            description=(
                "Days for which a person may keep the text and the tool calls of conversations on"
                " the server, in the device database; the page offers it. 0: none are kept, and"
                " kept ones are deleted."
            ),
        ),
    ] = 0


class LogConfig(Section, frozen=True):
    """Settings of the log on standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Lowest level that is logged."),
    ] = "info"
    json: Annotated[bool, Meta(description="Write one JSON object per line instead of text.")] = (
        False
    )
    transcripts: Annotated[
        bool,
        Meta(description="Log transcripts and answers. Off by default, because they are private."),
    ] = False


class TraceConfig(Section, frozen=True):
    """Settings of the trace, a record of every session for replay."""

    path: Annotated[
        str,
        Meta(
            description=(
                "JSONL file to which the events of every session are appended. Empty: no trace."
            )
        ),
    ] = ""
    transcripts: Annotated[
        bool,
        Meta(
            description=(
                "Also write transcripts and answers. Off by default, because they are private."
            )
        ),
    ] = False
    audio: Annotated[
        bool,
        Meta(
            description=(
                "Also write the audio that each session receives, at most ten minutes, for"
                " `earshot replay`. Off by default, because it is private."
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
            description="Language (ISO 639-1) of sessions whose client names none.",
        ),
    ] = "en"
    server: ServerConfig = ServerConfig()
    paths: PathsConfig = PathsConfig()
    vad: EngineConfig = EngineConfig()
    wake: EngineConfig = EngineConfig()
    endpoint: EngineConfig = EngineConfig()
    asr: AsrConfig = AsrConfig()
    models: ModelsConfig = ModelsConfig()
    limits: LimitsConfig = LimitsConfig()
    llm: LlmConfig = LlmConfig()
    tts: TtsConfig = TtsConfig()
    turn: TurnConfig = TurnConfig()
    assistant: AssistantConfig = AssistantConfig()
    speakers: SpeakersConfig = SpeakersConfig()
    tools: ToolsConfig = ToolsConfig()
    mcp_server: McpServerConfig = McpServerConfig()
    realtime: RealtimeConfig = RealtimeConfig()
    prompts: Annotated[
        dict[PromptId, PromptConfig],
        Meta(
            title="tables with text",
            description=(
                "Stored prompts by id, each with text, version and former. Clients can refer to"
                " them by id."
            ),
        ),
    ] = field(default_factory=dict)
    ice: IceConfig = IceConfig()
    devices: DevicesConfig = DevicesConfig()
    willow: WillowConfig = WillowConfig()
    wyoming: WyomingConfig = WyomingConfig()
    telephone: TelephoneConfig = TelephoneConfig()
    ingrain: IngrainConfig = IngrainConfig()
    remote: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=200)], RemoteModelSettings],
        Meta(
            title="tables with kind and base_url",
            description=(
                "Models on other servers with OpenAI's API, by the name that requests use, of the"
                " kind llm, asr, tts, embed or rerank. Others of their fields: model,"
                " api_key_file, images, max_requests, timeout_s, connect_timeout_s."
            ),
        ),
    ] = field(default_factory=dict)
    kserve: KserveConfig = KserveConfig()
    cluster: ClusterConfig = ClusterConfig()
    machines: MachinesConfig = MachinesConfig()
    xiaozhi: XiaozhiConfig = XiaozhiConfig()
    esphome: EspHomeConfig = EspHomeConfig()
    home_assistant: HomeAssistantConfig = HomeAssistantConfig()
    mqtt: MqttConfig = MqttConfig()
    doors: Annotated[
        dict[Annotated[str, Meta(pattern=PLUGIN_NAME)], dict[str, Any]],
        Meta(
            title="tables with settings",
            description=(
                "Doors of installed packages, by the name that the package gives them, each with"
                " its own settings. `earshot doctor` lists the installed ones."
            ),
        ),
    ] = field(default_factory=dict)
    home: Annotated[
        HomeConfig | None,
        Meta(
            title="table with areas and entities",
            description="Areas and devices of the demo home. Not set: the bundled demo home.",
        ),
    ] = None
    history: HistoryConfig = HistoryConfig()
    log: LogConfig = LogConfig()
    trace: TraceConfig = TraceConfig()
