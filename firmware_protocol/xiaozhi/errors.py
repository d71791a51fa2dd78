"""What can be wrong with what a device sends. `reason` is one of a few stable words."""

from typing import Literal

from core.errors import RemoteProtocolError

FrameReason = Literal["truncated", "trailing", "too_large", "bad_version", "bad_kind"]
MessageReason = Literal["bad_json", "bad_message", "too_large"]


class BadFrame(RemoteProtocolError):
    """A binary frame that is not one of the announced protocol version: its sender and we disagree
    about every further one, too."""

    code = "bad_frame"

    def __init__(self, reason: FrameReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class BadMessage(RemoteProtocolError):
    """A text frame that cannot be used. Stock firmware writes some (it does not escape wake words
    and errors of tools), so it is left out and the connection goes on."""

    code = "bad_message"

    def __init__(self, reason: MessageReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason
