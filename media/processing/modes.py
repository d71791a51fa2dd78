"""What is done about our own voice in a microphone; apart from what does it, which loads much."""

from typing import Literal

EchoMode = Literal["off", "cancel", "half_duplex"]
"""off: the client cancels by itself. cancel: see `media.processing.aec3`. half_duplex: nobody
interrupts; for a device whose delay is longer than 2 s or never the same twice."""


# What is done about noise in a microphone; apart from what does it, which loads much.

NoiseMode = Literal["off", "near_field", "far_field"]
"""near_field: a little, for a microphone at the mouth. far_field: more, for one across the room."""
