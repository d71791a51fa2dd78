"""What is done about noise in a microphone; apart from what does it, which loads much."""

from typing import Literal

NoiseMode = Literal["off", "near_field", "far_field"]
"""near_field: a little, for a microphone at the mouth. far_field: more, for one across the room."""
