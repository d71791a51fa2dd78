"""Section `[xiaozhi]`: the door for xiaozhi boards."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from devices.xiaozhi.settings import XiaozhiSettings
from firmware_protocol.xiaozhi.state_machine import DialogueSettings
from pipeline.shared.settings import InitialSettings, SessionSettings, TurnDetection
from server.config.types import Section
from server.net.allowlist import networks_of

FOLDER = "xiaozhi/firmware"
"Folder of the boards' firmware, in the state folder."


class XiaozhiConfig(Section, frozen=True):
    """Settings for boards with xiaozhi's stock firmware, on the main listener under /xiaozhi."""

    networks: Annotated[
        tuple[str, ...],
        Meta(
            title="list of lan or networks like 192.168.1.0/24",
            description=(
                "Networks whose boards may check in, in addition to this machine. lan means every"
                " private network. A connection also needs the board's own key."
            ),
        ),
    ] = ()
    url: Annotated[
        str,
        Meta(
            pattern=r"^(wss?://[A-Za-z0-9.-]+(:[0-9]{1,5})?/xiaozhi/v1/)?$",
            title="ws://HOST:PORT/xiaozhi/v1/ or wss://...",
            description=(
                "Address to which boards connect. Empty: the address at which they checked in."
                " Needed behind a proxy or a mapped port."
            ),
        ),
    ] = ""
    detection: Annotated[
        Literal["server_vad", "semantic_vad"],
        Meta(
            description=(
                "Method of detecting the end of a turn; boards leave it to the server. semantic_vad"
                " answers sooner after whole sentences, server_vad always waits for"
                " turn.silence_ms."
            )
        ),
    ] = "semantic_vad"
    firmware: Annotated[
        Literal["when_asked", "at_start"],
        Meta(
            description=(
                "When a board gets firmware from STATE_DIR/xiaozhi/firmware/VERSION/BOARD.bin."
                " when_asked: only on request, on the page or by `earshot devices ota`. at_start:"
                " also when it starts with an older version."
            )
        ),
    ] = "when_asked"
    max_silence_s: Annotated[
        float,
        Meta(
            ge=3,
            le=110,
            description=(
                "Seconds without speech after which a listening board becomes idle. Boards"
                " consider a connection dead after 120 s."
            ),
        ),
    ] = 20.0
    max_turn_s: Annotated[
        float,
        Meta(
            ge=3,
            le=120,
            description=(
                "Maximum length of a user's turn in seconds; then the board is answered even if the"
                " user still speaks."
            ),
        ),
    ] = 20.0

    def __post_init__(self) -> None:
        networks_of(self.networks, "xiaozhi.networks")

    def as_settings(self, state_dir: str, initial_settings: InitialSettings) -> XiaozhiSettings:
        """Returns the settings in the door's form. `initial_settings`: those of a new session."""

        def board_settings() -> SessionSettings:
            usual = initial_settings()
            detection = replace(usual.turn_detection or TurnDetection(), kind=self.detection)
            # The board has detected its own wake word already.
            return replace(usual, wake_word="", turn_detection=detection)

        return XiaozhiSettings(
            networks=networks_of(self.networks, "xiaozhi.networks"),
            url=self.url,
            initial_settings=board_settings,
            dialogue=DialogueSettings(max_silence_s=self.max_silence_s, max_turn_s=self.max_turn_s),
            folder=Path(state_dir).expanduser() / FOLDER,
            offers_firmware=self.firmware == "at_start",
        )
