"""Identifiers as they appear on the wire: a prefix for the kind, then 96 random bits."""

import secrets


def new_id(prefix: str) -> str:
    """Returns a new id: `new_id("item")` -> `item_3f9c...`. Ids cannot be guessed, because a call's
    id alone allows to hang up."""
    return f"{prefix}_{secrets.token_hex(12)}"
