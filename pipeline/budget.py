"""How many answers a server begins before their turns are over."""

from dataclasses import dataclass

MAX_LIVE = 8
"""Drafts of a whole server. More at once mean that many people pause at once: then the turns that
are over need the engines."""


@dataclass(slots=True)
class Budget:
    """Shared by all sessions."""

    limit: int = MAX_LIVE
    "0: no answer is begun before its turn is over."
    live: int = 0
