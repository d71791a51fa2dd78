"""All errors of Earshot in one tree. Each class has a stable `code`; only `server/http/edge.py`
turns errors into HTTP.

    EarshotError
    ├── ConfigError                the configuration is wrong; the server does not start
    ├── RemoteProtocolError        the peer broke a wire format; close the connection
    ├── RequestError               the request is wrong; says what is wrong and what is allowed
    │   ├── Unauthorized           no key, or a wrong one
    │   ├── Forbidden              a foreign Origin or Host
    │   ├── NotFound               no such call, model, conversation, ...
    │   ├── Conflict               right request, wrong moment
    │   └── PayloadTooLarge        above a named limit
    ├── StorageError               the database of devices cannot be read or written now
    ├── OverloadedError            no room now; says when to try again
    │   └── SupersededError        a newer request of the same utterance came first
    └── EngineError                an engine failed; the turn is lost, the session goes on
        ├── EngineMissing          not installed, or its weights are missing
        │   └── EngineRefused      its library refuses the model's files or the settings
        ├── EngineCrashed          its worker process died or hung; it is being restarted
        ├── ContextLengthExceeded  the prompt is too long for the model; a shorter one may fit
        ├── AnswerFormatBroken     the answer has not the form that was asked for
        ├── InvalidTokens          a stage of the model wrote tokens that the next cannot read
        ├── EngineUnreachable      no answer at its address, or the connection broke
        └── EngineTimeout          no answer within its deadline
"""

import traceback
from typing import ClassVar, TypeVar, overload

MAX_CHAIN = 8
"Most exceptions of one chain that are logged; longer chains repeat themselves."
MAX_FRAMES = 4
"Stack frames that are logged of each exception: the innermost, in the code that failed."


class EarshotError(Exception):
    """Base of every error that Earshot raises on purpose."""

    code: str = "internal"
    "Stable name of the error for programs."
    retryable: ClassVar[bool] = False
    "True if the same request may succeed later."


class ConfigError(EarshotError):
    """The configuration is wrong; the server does not start."""

    code = "bad_config"


class RemoteProtocolError(EarshotError):
    """The peer broke a wire format; its connection is closed."""

    code = "protocol_error"


class RequestError(EarshotError):
    """A wrong request. `code` says which kind of error, `param` which field (dotted path)."""

    code = "invalid_request"

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.param = param


class Unauthorized(RequestError):
    """The key is missing or wrong."""

    code = "invalid_api_key"


class Forbidden(RequestError):
    """The request came from a foreign Origin or Host."""

    code = "forbidden"


class NotFound(RequestError):
    """The call, model, conversation or other thing does not exist."""

    code = "not_found"


class Conflict(RequestError):
    """The request is right, but comes at the wrong moment."""

    code = "conflict"


class PayloadTooLarge(RequestError):
    """The request is larger than a named limit."""

    code = "too_large"


class StorageError(EarshotError):
    """The database cannot be read or written now."""

    code = "storage_failed"
    retryable = True


class OverloadedError(EarshotError):
    """There is no room for this request now. `retry_after_s`: seconds after which to try again."""

    code = "server_full"
    retryable = True

    def __init__(self, message: str, *, retry_after_s: int, code: str | None = None) -> None:
        super().__init__(message)
        self.code = code or type(self).code
        self.retry_after_s = retry_after_s


class SupersededError(OverloadedError):
    """A newer request of the same utterance replaced this one. There is nothing to try again."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retry_after_s=0, code="superseded")


class EngineError(EarshotError):
    """An engine failed. `stage`: vad, asr, llm, tts, endpoint, wake, speaker or tool. `engine`: its
    configured name."""

    code = "engine_failed"

    def __init__(self, stage: str, engine: str, detail: str = "failed") -> None:
        super().__init__(f"{stage} engine {engine!r}: {detail}")
        self.stage, self.engine, self.detail = stage, engine, detail


class EngineMissing(EngineError):
    """The engine is not installed, or its weights are missing."""

    code = "engine_missing"


class EngineRefused(EngineMissing):
    """The engine's library refuses the model's files, or the settings do not fit them. Another try
    ends the same way."""


class EngineCrashed(EngineError):
    """The engine's worker process died or hung; it is being restarted."""

    code = "engine_crashed"
    retryable = True


class ContextLengthExceeded(EngineError):
    """The prompt is too long for the model; a shorter one may fit."""

    code = "context_length_exceeded"


class AnswerFormatBroken(EngineError):
    """The answer has not the form (`LlmOptions.answer_format`) that was asked for."""

    code = "answer_format_broken"


class InvalidTokens(EngineError):
    """A stage of the model wrote tokens that the next stage cannot read. The text names it."""

    code = "invalid_tokens"


class EngineUnreachable(EngineError):
    """The engine's server does not answer, or the connection broke."""

    code = "engine_unreachable"
    retryable = True


class EngineTimeout(EngineError):
    """The engine did not answer within its deadline."""

    code = "engine_timeout"
    retryable = True


ErrorT = TypeVar("ErrorT", bound=BaseException)


@overload
def first_error(error: BaseExceptionGroup[ErrorT]) -> ErrorT: ...


@overload
def first_error(error: BaseException) -> BaseException: ...


def first_error(error: BaseException) -> BaseException:
    """Returns the first error of a group, however deep, because later ones are its consequences. An
    error that is no group is returned as it is."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def expected_failure(error: BaseException) -> EarshotError | None:
    """Returns the EarshotError that an exception is, or the first one in a group. None for a bug,
    and for a group with a bug in it."""
    if isinstance(error, EarshotError):
        return error
    if isinstance(error, BaseExceptionGroup):
        causes = [expected_failure(inner) for inner in error.exceptions]
        return None if None in causes else causes[0]
    return None


def chain_of(error: BaseException) -> str:
    """Returns the types of an exception and its causes, and the lines of code that raised them.

    Messages are left out: a plugin may put the user's words into them, and words are never logged.
    """
    described: list[str] = []
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen and len(described) < MAX_CHAIN:
        seen.add(id(current))
        described.append(_place(current))
        hidden = current.__suppress_context__
        current = current.__cause__ or (None if hidden else current.__context__)
    return ", caused by ".join(described)


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]
    where = " > ".join(f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames)
    return f"{type(error).__name__} at {where}" if where else type(error).__name__
