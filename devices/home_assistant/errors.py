"""What keeps Home Assistant from doing something; each `code` has a sentence in `words.toml`."""

from core.errors import EarshotError


class HomeAssistantError(EarshotError):
    """Base of these."""

    code = "house_failed"


class HomeAssistantUnreachable(HomeAssistantError):
    """Nobody answers there, the connection broke, or it is just starting."""

    code = "house_unreachable"
    retryable = True


class HomeAssistantTimeout(HomeAssistantError):
    """No answer in time; what was asked for may still happen."""

    code = "house_timeout"
    retryable = True


class HomeAssistantAccessError(HomeAssistantError):
    """It does not take the token, or has banned our address. Trying again makes it worse: after a
    few wrong tokens it bans the address for good."""

    code = "house_refused"


class HomeAssistantCommandError(HomeAssistantError):
    """It answered a command with an error of its own; `theirs` is its code."""

    code = "house_failed"

    def __init__(self, theirs: str, message: str) -> None:
        super().__init__(f"{theirs}: {message}")
        self.theirs = theirs
