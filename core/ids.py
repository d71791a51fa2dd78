"""Identifiers as they appear on the wire: a prefix that says what it is, then 96 random bits."""

import secrets


def new_id(prefix: str) -> str:
    """`new_id("item")` -> `item_3f9c...`: unguessable, since a call id alone grants hang-up."""
    return f"{prefix}_{secrets.token_hex(12)}"
