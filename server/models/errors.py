"""Errors of hubs and of the models folder."""

from core.errors import EarshotError


class ModelsError(EarshotError):
    """Raised when a model cannot be fetched, converted, removed or used; the message gives the
    reason."""

    code = "model_failed"


class HubUnreachable(ModelsError):
    """Raised if there is no connection, no answer in time, or only server errors. It may work
    later."""

    code = "hub_unreachable"
    retryable = True


class HubBusy(HubUnreachable):
    """Raised when the hub answers that it cannot serve the request now."""


class HubOffline(HubUnreachable):
    """Raised when a file is missing and network access was forbidden."""

    code = "offline"


class MissingConversionTools(ModelsError):
    """Raised when libraries for converting are not installed."""

    code = "tools_missing"
