"""Section `[turn]`: how the end of the user's turn is detected."""

from typing import Annotated, Literal

from msgspec import Meta

from pipeline.shared.settings import TurnDetection
from server.config.types import Section
from serving.scheduling.llm_slots import MAX_DRAFTS


class TurnConfig(Section, frozen=True):
    """Settings of turn detection where the client sets none."""

    detection: Annotated[
        Literal["server_vad", "semantic_vad"],
        Meta(
            description=(
                "Method of detecting the end of a turn. server_vad waits for silence_ms of"
                " silence; semantic_vad also considers the words, and waits as long as"
                " eagerness allows."
            )
        ),
    ] = "server_vad"
    threshold: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            description="Speech probability at or above which a frame counts as speech.",
        ),
    ] = 0.5
    prefix_padding_ms: Annotated[
        int,
        Meta(
            ge=0,
            le=2000,
            description="Milliseconds of audio that are kept from before the first speech frame.",
        ),
    ] = 300
    silence_ms: Annotated[
        int,
        Meta(
            ge=100,
            le=5000,
            description=(
                "Milliseconds of silence that end the user's turn. A lower value is faster,"
                " but interrupts people who pause."
            ),
        ),
    ] = 500
    eagerness: Annotated[
        Literal["low", "medium", "high", "auto"],
        Meta(
            description="How readily semantic_vad ends a turn: high is fastest, low waits longest."
        ),
    ] = "auto"

    max_drafts: Annotated[
        int,
        Meta(
            ge=0,
            le=1000,
            description=(
                "Maximum number of answers, over all sessions, that are started before it is"
                " certain that the user has finished. Unused ones cost money with a paid language"
                " model. 0: none."
            ),
        ),
    ] = MAX_DRAFTS

    def as_turn_detection(self) -> TurnDetection:
        """Returns the settings in a session's form."""
        return TurnDetection(
            kind=self.detection,
            threshold=self.threshold,
            prefix_padding_ms=self.prefix_padding_ms,
            silence_ms=self.silence_ms,
            eagerness=self.eagerness,
        )
