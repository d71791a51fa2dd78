"""Section `[assistant]`: how sessions begin."""

from typing import Annotated

from msgspec import Meta, Struct

from media.processing.modes import EchoMode, NoiseMode
from pipeline.shared.settings import DEFAULT, BargeInPolicy, SessionSettings, TurnDetection


class AssistantConfig(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of the assistant where neither the client nor a conversation's profile sets them."""

    instructions: Annotated[
        str,
        Meta(
            max_length=20_000,
            description="The system prompt of the language model, in place of Earshot's own.",
        ),
    ] = ""
    default_instructions: Annotated[
        bool,
        Meta(
            description=(
                "Where nobody gives instructions, the model is told Earshot's own in the language"
                " of the answer: it is spoken, short, without markdown, with date and room."
            )
        ),
    ] = True
    voice: Annotated[
        str,
        Meta(min_length=1, description="default, a voice, an engine, or engine:voice."),
    ] = DEFAULT
    speed: Annotated[float, Meta(ge=0.25, le=1.5, description="Of the voice.")] = 1.0
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=2)] | None,
        Meta(title="number in [0, 2]", description="Not set: the engine's own."),
    ] = None
    max_output_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        Meta(title="int in [1, 100000]", description="Of one answer; not set: no limit."),
    ] = None
    tools: Annotated[
        tuple[str, ...] | None,
        Meta(title="list of text", description="Names of the tools it may use; not set: all."),
    ] = None
    barge_in: Annotated[
        BargeInPolicy,
        Meta(
            description=(
                "What stops an answer: speech over it, only words that mean something (patient), or"
                " nothing (off)."
            )
        ),
    ] = "on"
    echo: Annotated[
        EchoMode,
        Meta(
            description=(
                "What is done about the answer in the microphone of clients that do not cancel it:"
                " nothing, cancel, or not to listen while it sounds (half_duplex)."
            )
        ),
    ] = "off"
    noise_reduction: Annotated[
        NoiseMode,
        Meta(
            description=(
                "Makes steady noise quieter before anything is heard: a little, for a microphone at"
                " the mouth (near_field), or more, for one across the room (far_field)."
            )
        ),
    ] = "off"

    wake_word: Annotated[
        str,
        Meta(
            max_length=64,
            description=(
                "Until this word is heard, nothing that is said is heard, e.g. okay_nabu; empty:"
                " sessions listen at once."
            ),
        ),
    ] = ""

    def settings(self, turn_detection: TurnDetection) -> SessionSettings:
        """Returns the settings with which a session begins."""
        return SessionSettings(
            turn_detection=turn_detection,
            instructions=self.instructions,
            voice=self.voice,
            speed=self.speed,
            answer_temperature=self.temperature,
            max_output_tokens=self.max_output_tokens,
            tools=self.tools,
            barge_in=self.barge_in,
            echo=self.echo,
            noise_reduction=self.noise_reduction,
            wake_word=self.wake_word,
        )
