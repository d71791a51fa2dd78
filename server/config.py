"""Every setting: its type, range, default and a sentence. `server/config_load.py` fills them in.

The sentences are data (`Meta.description`), because `earshot config` prints them.
"""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field
from msgspec.structs import asdict

from pipeline.home.config import HomeConfig
from pipeline.settings import TurnDetection
from server.config_types import masked

Names = tuple[str, ...]


class Section(Struct, frozen=True, forbid_unknown_fields=True):
    """A table of settings; its secrets stay out of logs and tracebacks."""

    def __repr__(self) -> str:
        shown = (f"{name}={masked(value, name)!r}" for name, value in asdict(self).items())
        return f"{type(self).__name__}({', '.join(shown)})"


class ServerConfig(Section, frozen=True):
    """The main listener and what it lets in."""

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
            pattern=r"^([A-Za-z0-9._~-]{16,256})?$",
            title="16 to 256 of A-Z a-z 0-9 . _ ~ -",
            description="The key callers must send; empty: made at need and kept in state_dir.",
        ),
    ] = ""
    allowed_hosts: Annotated[
        Names,
        Meta(
            description=(
                "Further names in the Host header, e.g. behind a reverse proxy; this machine's own"
                " names and all IP addresses are always known."
            )
        ),
    ] = ()
    allowed_origins: Annotated[
        Names,
        Meta(
            description=(
                'Web sites that may use the API from a browser, always with the key; "*" is any.'
            )
        ),
    ] = ("*",)
    max_sessions: Annotated[
        int, Meta(ge=1, le=10_000, description="Sessions at once; the next one is told to wait.")
    ] = 32
    max_body_bytes: Annotated[
        int,
        Meta(ge=65_536, le=2**31, description="Largest request body; larger ones get 413."),
    ] = 2**20
    drain_timeout_s: Annotated[
        float,
        Meta(ge=0, le=600, description="How long running turns may finish after SIGTERM."),
    ] = 8.0  # `docker stop` kills after 10
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


class PathsConfig(Section, frozen=True):
    """Where things lie."""

    models_dir: Annotated[
        str, Meta(min_length=1, description="Folder of model weights, one folder per model.")
    ] = "models"
    state_dir: Annotated[
        str,
        Meta(min_length=1, description="Folder for the key and certificate; readable by you only."),
    ] = "~/.local/state/earshot"


class EngineConfig(Section, frozen=True):
    """One kind of engine."""

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
    """Speech recognition; sessions may choose among several."""

    workers: Annotated[
        int,
        Meta(
            ge=0,
            le=64,
            description=(
                "Processes that run the chosen engine; each takes its own memory. 0: as suits it."
            ),
        ),
    ] = 0

    also: Annotated[
        Names,
        Meta(description="Further engines that sessions may ask for; each takes its own memory."),
    ] = ()


class TurnConfig(Section, frozen=True):
    """How a turn ends, where the client does not say."""

    detection: Annotated[
        Literal["server_vad", "semantic_vad"],
        Meta(
            description=(
                "server_vad waits exactly silence_ms; semantic_vad as long as its eagerness says."
            )
        ),
    ] = "server_vad"
    threshold: Annotated[
        float,
        Meta(ge=0, le=1, description="Speech probability from which on a frame counts as speech."),
    ] = 0.5
    prefix_padding_ms: Annotated[
        int, Meta(ge=0, le=2000, description="Audio kept from before the first speech frame.")
    ] = 300
    silence_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=5000,
            description=(
                "Silence that ends the user's turn; lower is faster, but cuts people off."
            ),
        ),
    ] = 500
    eagerness: Annotated[
        Literal["low", "medium", "high", "auto"],
        Meta(description="How soon semantic_vad takes a turn for over."),
    ] = "auto"

    def as_turn_detection(self) -> TurnDetection:
        """The same as a session takes it."""
        return TurnDetection(
            kind=self.detection,
            threshold=self.threshold,
            prefix_padding_ms=self.prefix_padding_ms,
            silence_ms=self.silence_ms,
            eagerness=self.eagerness,
        )


class LogConfig(Section, frozen=True):
    """What is written to standard error."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Meta(description="Least level that is shown.")
    ] = "info"
    json: Annotated[bool, Meta(description="One JSON object per line instead of text.")] = False
    transcripts: Annotated[
        bool, Meta(description="Log what was said and answered; off, because it is private.")
    ] = False


class TraceConfig(Section, frozen=True):
    """A record of every session, for replay."""

    path: Annotated[
        str,
        Meta(description="JSONL file to append every session's events to; empty: no trace."),
    ] = ""
    transcripts: Annotated[
        bool, Meta(description="Also write what was said and answered; off, because it is private.")
    ] = False


class Config(Section, frozen=True):
    """Everything, as one TOML file holds it."""

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
    asr: AsrConfig = AsrConfig()
    llm: EngineConfig = EngineConfig()
    tts: EngineConfig = EngineConfig()
    turn: TurnConfig = TurnConfig()
    home: Annotated[
        HomeConfig | None,
        Meta(
            title="table with areas and entities",
            description="The demo home's areas and devices; not set: the bundled one.",
        ),
    ] = None
    log: LogConfig = LogConfig()
    trace: TraceConfig = TraceConfig()
