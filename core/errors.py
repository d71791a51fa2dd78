"""The one error tree. Each class has a stable `code`; `server/http/edge.py` alone turns it into
HTTP.

EarshotError
├── ConfigError            the configuration is wrong; the server does not start
├── RemoteProtocolError    the peer broke a wire format; close the connection
├── RequestError           the caller asked for something wrong; says what and what is allowed
│   ├── Unauthorized       no key, or a wrong one
│   ├── Forbidden          a foreign Origin or Host
│   ├── NotFound           no such call, model, conversation, ...
│   ├── Conflict           right request, wrong moment
│   └── TooLarge           above a named limit
├── StorageFailed          the database of devices cannot be read or written now
├── Overloaded             no room now; carries when to come back
│   └── Superseded         no room came before a newer request of the same utterance did
└── EngineError            an engine failed; the turn is lost, the session lives
    ├── EngineMissing      not installed, or its weights are not there
    ├── EngineCrashed      its worker process died or hung; it is being restarted
    ├── ContextExceeded    the prompt is longer than the model takes; a shorter one may do
    ├── EngineUnreachable  nobody answers where it is served, or the connection broke
    └── EngineTimeout      no answer within its deadline
"""

import traceback
from typing import ClassVar

MAX_CHAIN = 8
"Exceptions of one chain that are logged; longer chains repeat themselves."
MAX_FRAMES = 4
"Of each exception, the innermost: they are in the code that failed."


class EarshotError(Exception):
    """Base of every error we raise on purpose."""

    code: str = "internal"
    retryable: ClassVar[bool] = False


class ConfigError(EarshotError):
    code = "bad_config"


class RemoteProtocolError(EarshotError):
    code = "protocol_error"


class RequestError(EarshotError):
    """A wrong request. `code` says which kind, `param` which field (dotted path)."""

    code = "invalid_request"

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.param = param


class Unauthorized(RequestError):
    code = "invalid_api_key"


class Forbidden(RequestError):
    code = "forbidden"


class NotFound(RequestError):
    code = "not_found"


class Conflict(RequestError):
    code = "conflict"


class PayloadTooLarge(RequestError):
    code = "too_large"


class StorageError(EarshotError):
    """The database cannot be read or written."""

    code = "storage_failed"
    retryable = True


class OverloadedError(EarshotError):
    """No room for this now."""

    code = "server_full"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: int, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.retry_after_s = retry_after_s


class SupersededError(OverloadedError):
    """Nothing to try again: the newer request covers it."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_s=0, code="superseded")


class EngineError(EarshotError):
    """`stage` is vad, asr, llm, tts or tool; `engine` its configured name."""

    code = "engine_failed"

    def __init__(self, stage: str, engine: str, detail: str = "failed") -> None:
        super().__init__(f"{stage} engine {engine!r}: {detail}")
        self.stage, self.engine, self.detail = stage, engine, detail


class EngineMissing(EngineError):
    code = "engine_missing"


class EngineCrashed(EngineError):
    code = "engine_crashed"
    retryable = True


class ContextLengthExceeded(EngineError):
    code = "context_length_exceeded"


class EngineUnreachable(EngineError):
    code = "engine_unreachable"
    retryable = True


class EngineTimeout(EngineError):
    code = "engine_timeout"
    retryable = True


def first_error(group: BaseExceptionGroup[EarshotError]) -> EarshotError:
    """The first error of a group: later ones are its echo."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, EarshotError)
    return error


def chain_of(error: BaseException) -> str:
    """The types of an exception and its causes, and the lines of code that raised them.

    Messages are left out: a plugin may put what was said into them, and words are never logged.
    """
    told: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(told) < MAX_CHAIN:
        seen.add(id(current))
        told.append(_place(current))
        hidden = current.__suppress_context__
        current = current.__cause__ or (None if hidden else current.__context__)
    return ", caused by ".join(told)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    where = " > ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)
    return f"{type(error).__name__} at {where}" if where else type(error).__name__
