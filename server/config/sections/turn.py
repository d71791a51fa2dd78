"""Section `[turn]`: turn detection."""

from typing import Annotated, Literal

from msgspec import Meta

from pipeline.shared.settings import TurnDetection
from server.config.types import Section
from serving.llm_slots import MAX_LIVE


class TurnConfig(Section, frozen=True):
    """Settings of turn detection where the client sets none."""

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

    max_drafts: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description=(
                "Answers of all sessions that may be begun while it is not sure that the user has"
                " finished; those that are not used cost a paid language model money. 0: none."
            ),
        ),
    ] = MAX_LIVE

    def as_turn_detection(self) -> TurnDetection:
        """Returns the settings in a session's form."""
        return TurnDetection(
            kind=self.detection,
            threshold=self.threshold,
            prefix_padding_ms=self.prefix_padding_ms,
            silence_ms=self.silence_ms,
            eagerness=self.eagerness,
        )
