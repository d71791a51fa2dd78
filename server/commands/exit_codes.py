"""Exit codes of the process, for scripts and service managers."""

from enum import IntEnum

from core.errors import ConfigError, EarshotError, EngineError
from server.models.errors import HubUnreachable
from server.net.listeners import AddressInUse
from serving.models.catalogue import UnknownModelError


class ExitCode(IntEnum):
    """Exit codes of `earshot`; documented in docs/cli.md."""

    OK = 0
    CANNOT_RUN = 1
    "doctor: the server cannot answer with these settings. Any command: an internal error."
    USAGE = 2
    "Wrong arguments or configuration."
    ADDRESS_IN_USE = 3
    ENGINE_MISSING = 4
    "An engine or its weights are missing or do not load."
    CONNECTION_FAILED = 5
    """talk: the server cannot be reached, refused the call, or went away. models: the same for the
    hub."""
    INTERRUPTED = 130
    "Ctrl-C before there was anything to drain."
    OUTPUT_CLOSED = 141
    """The program that read the output has ended, as `head` does. A program that SIGPIPE ends has
    this code in a shell, too."""


def exit_code_for(error: EarshotError) -> ExitCode:
    """Returns the exit code of an expected failure."""
    match error:
        case ConfigError() | UnknownModelError():
            return ExitCode.USAGE
        case AddressInUse():
            return ExitCode.ADDRESS_IN_USE
        case EngineError():
            return ExitCode.ENGINE_MISSING
        case HubUnreachable():
            return ExitCode.CONNECTION_FAILED
        case _:
            return ExitCode.CANNOT_RUN
