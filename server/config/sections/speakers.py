"""Section `[speakers]`: which model recognises people by their voices, and how sure it must be."""

from typing import Annotated

from msgspec import Meta

from server.config.types import Section
from serving.speaker.recognition import AUTO, SpeakerSettings

Score = Annotated[float, Meta(gt=0, lt=1)]


class SpeakersConfig(Section, frozen=True):
    """Settings of the recognition of people."""

    model: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=200,
            description=(
                "Model that recognises people: the name of a folder in the models folder, ge2e, or"
                " sherpa:NAME. auto: ge2e if it is there, else the first one. People whom another"
                " model has learned must teach their voices again."
            ),
        ),
    ] = AUTO
    threshold: Annotated[
        Score | None,
        Meta(
            description=(
                "Score from which a voice counts as known. Unset: that of the model's engine,"
                " 0.72 for ge2e and 0.6 for sherpa."
            )
        ),
    ] = None
    guard_threshold: Annotated[
        Score | None,
        Meta(
            description=(
                "Score from which a voice may use what a guard protects. Unset: 0.8 for ge2e and"
                " 0.7 for sherpa."
            )
        ),
    ] = None

    def as_settings(self) -> SpeakerSettings:
        """Returns the settings in the form of the recognition."""
        return SpeakerSettings(self.model, self.threshold, self.guard_threshold)
