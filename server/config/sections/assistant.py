"""Section `[assistant]`: the settings with which a session begins."""

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
            description="System prompt of the language model. It replaces Earshot's own.",
        ),
    ] = ""
    default_instructions: Annotated[
        bool,
        Meta(
            description=(
                "Whether the language model gets Earshot's own system prompt if there is no other."
                " It asks for short spoken answers without markdown, names the date and the room,"
                " and is written in the language of the answer."
            )
        ),
    ] = True
    voice: Annotated[
        str,
        Meta(
            min_length=1,
            description="Voice of the answers: default, a voice, an engine, or engine/voice.",
        ),
    ] = DEFAULT
    speed: Annotated[
        float, Meta(ge=0.25, le=1.5, description="Rate of speech of the voice; 1 is normal.")
    ] = 1.0
    temperature: Annotated[
        Annotated[float, Meta(ge=0, le=2)] | None,
        Meta(
            title="number in [0, 2]",
            description=(
                "Sampling temperature of the language model. Not set: the engine's default."
            ),
        ),
    ] = None
    max_output_tokens: Annotated[
        Annotated[int, Meta(ge=1, le=100_000)] | None,
        Meta(
            title="int in [1, 100000]",
            description="Maximum number of tokens in one answer. Not set: no limit.",
        ),
    ] = None
    tools: Annotated[
        tuple[str, ...] | None,
        Meta(
            title="list of text",
            description="Names of the tools that the language model may use. Not set: all tools.",
        ),
    ] = None
    barge_in: Annotated[
        BargeInPolicy,
        Meta(
            description=(
                "Speech that interrupts an answer that is playing: any speech (on), only meaningful"
                " words (patient), only the wake word or a word that means stop (wake_word), or"
                " none (off)."
            )
        ),
    ] = "on"
    echo: Annotated[
        EchoMode,
        Meta(
            description=(
                "Handling of the echo of an answer in the microphone, for clients without echo"
                " cancellation: none (off), the echo is cancelled (cancel), or the microphone is"
                " ignored while an answer plays (half_duplex)."
            )
        ),
    ] = "off"
    noise_reduction: Annotated[
        NoiseMode,
        Meta(
            description=(
                "Reduction of steady noise before speech detection and recognition: none (off), a"
                " little, for a microphone near the mouth (near_field), or more, for one across the"
                " room (far_field)."
            )
        ),
    ] = "off"

    wake_word: Annotated[
        str,
        Meta(
            max_length=64,
            description=(
                "Wake word, e.g. okay_nabu. Speech is ignored until it is detected. Empty:"
                " sessions listen from the start."
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
