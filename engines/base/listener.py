"""What a voice can know of the listener: until when he has sound."""

from contextvars import ContextVar

SOUND_UNTIL_S: ContextVar[float] = ContextVar("sound_until_s")
"""Time of the event loop up to which the listener of the current speech has sound; in the past if
he waits for it. Unset: the speech begins now. A voice that is asked for several clauses at once
begins with the one whose listener runs out of sound first."""
