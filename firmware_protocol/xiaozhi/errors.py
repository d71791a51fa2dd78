"""Errors in messages from a device. Their `reason` is one of a few stable words."""

from typing import Literal

from core.errors import RemoteProtocolError

FrameReason = Literal["truncated", "trailing", "too_large", "bad_version", "bad_kind"]
MessageReason = Literal["bad_json", "bad_message", "too_large"]


class BadFrame(RemoteProtocolError):
    """Raised for a binary frame that does not fit the announced protocol version.

    Device and server then disagree about all further frames, too.
    """

    code = "bad_frame"

    def __init__(self, reason: FrameReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class BadMessage(RemoteProtocolError):
    """Raised for a text frame that cannot be used.

    The connection goes on without it, because stock firmware sends such frames: it does not escape
    wake words and errors of tools.
    """

    code = "bad_message"

    def __init__(self, reason: MessageReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
