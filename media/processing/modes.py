"""Names of the modes of echo control and noise suppression.

They are apart from the code that does the work, because importing that loads large libraries.
"""

from typing import Literal

EchoMode = Literal["off", "cancel", "half_duplex"]
"""Way in which the assistant's own voice is removed from the microphone.

  off          not at all: the client cancels the echo itself
  cancel       by `media.processing.aec3`
  half_duplex  the microphone is ignored while the assistant speaks, so no one can interrupt; for
               a device with a delay that is longer than 2 s or varies all the time
"""


NoiseMode = Literal["off", "near_field", "far_field"]
"""Strength of the noise suppression. near_field: a little, for a microphone at the mouth.
far_field: more, for one across the room."""
