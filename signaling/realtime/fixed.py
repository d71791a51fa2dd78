"""What the ephemeral key that opened a session has fixed of it."""

from dataclasses import dataclass, fields

from core.errors import RequestError
from signaling.realtime.session.settings import SessionConfiguration


@dataclass(frozen=True, slots=True)
class ClientSecretConfiguration(SessionConfiguration):
    """Of a session that an ephemeral key opened; what is changed of them stays of this kind."""


def as_minted(terms: SessionConfiguration) -> ClientSecretConfiguration:
    return ClientSecretConfiguration(
        **{one.name: getattr(terms, one.name) for one in fields(terms)}
    )


def check_conversation(asked: str | None, minted: str | None) -> None:
    """A browser's key must not open somebody else's conversation. Raises RequestError."""
    if asked is not None and asked != minted:
        raise RequestError(
            "The conversation is fixed by the client secret: leave it out.",
            code="cannot_update_conversation",
            param="conversation_id",
        )


def check_type(old: SessionConfiguration, new: SessionConfiguration) -> None:
    """A key that was made for writing down must not open a session that answers, nor the other way
    round. Raises RequestError."""
    if isinstance(old, ClientSecretConfiguration) and new.settings.answers != old.settings.answers:
        was = "realtime" if old.settings.answers else "transcription"
        raise RequestError(
            f"The type is fixed by the client secret: it was minted for '{was}'.",
            code="cannot_update_type",
            param="session.type",
        )
