"""Section `[tts.own_voices]`: voices that people make of recordings."""

from typing import Annotated, Any

from msgspec import Meta, field

from server.config.types import Section


class OwnVoicesConfig(Section, frozen=True):
    """Settings of voices that people make of recordings (docs/voices.md). Off by default."""

    engine: Annotated[
        str,
        Meta(
            description=(
                "Engine that makes and speaks them, such as pocket. It may be that of the answers."
                " Empty: nobody can make a voice, and those that exist cannot speak."
            )
        ),
    ] = ""
    options: Annotated[
        dict[str, Any],
        Meta(description="Settings of the engine itself; the engine checks them."),
    ] = field(default_factory=dict)
