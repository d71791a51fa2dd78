"""What can go wrong with a hub or a models folder."""

from core.errors import EarshotError


class ModelsError(EarshotError):
    """A model cannot be fetched, converted, removed or used; the message says why."""

    code = "model_failed"


class HubUnreachable(ModelsError):
    """No connection, no answer in time, or the server keeps failing. Later it may work."""

    code = "hub_unreachable"
    retryable = True


class HubBusy(HubUnreachable):
    """It answers that it cannot now."""


class HubOffline(HubUnreachable):
    """Something is missing, and looking for it on the network was forbidden."""

    code = "offline"


class MissingConversionTools(ModelsError):
    """Converting needs libraries that are not installed."""

    code = "tools_missing"
