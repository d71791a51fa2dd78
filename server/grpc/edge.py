"""Maps errors to gRPC's status codes, and checks the key of calls: what `server/http` does for
HTTP."""

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from urllib.parse import unquote

import grpc
from grpc.aio import ServicerContext

from core.access.named_key import CALLER_KEY, KeyScope
from core.errors import (
    Conflict,
    EarshotError,
    EngineError,
    EngineMissing,
    EngineTimeout,
    Forbidden,
    NotFound,
    OverloadedError,
    PayloadTooLarge,
    RequestError,
    StorageError,
    Unauthorized,
    expected_failure,
)
from core.http.routes import is_forwarded
from core.ports import Metrics
from server.http.access import KeyRequests
from server.http.auth import AccessGate, AccessRequest, token_of
from server.http.key_attempts import KeyAttemptLimiter
from web.kserve.messages import SERVICE
from web.kserve.settings import KserveSettings

logger = logging.getLogger(__name__)

STATUS_BY_CLASS: Mapping[type[EarshotError], grpc.StatusCode] = {
    EarshotError: grpc.StatusCode.INTERNAL,
    RequestError: grpc.StatusCode.INVALID_ARGUMENT,
    Unauthorized: grpc.StatusCode.UNAUTHENTICATED,
    Forbidden: grpc.StatusCode.PERMISSION_DENIED,
    NotFound: grpc.StatusCode.NOT_FOUND,
    Conflict: grpc.StatusCode.FAILED_PRECONDITION,
    PayloadTooLarge: grpc.StatusCode.RESOURCE_EXHAUSTED,
    StorageError: grpc.StatusCode.UNAVAILABLE,
    OverloadedError: grpc.StatusCode.RESOURCE_EXHAUSTED,
    EngineError: grpc.StatusCode.INTERNAL,
    EngineMissing: grpc.StatusCode.UNIMPLEMENTED,
    EngineTimeout: grpc.StatusCode.DEADLINE_EXCEEDED,
}
"Error class -> status code."

STATUS_BY_CODE: Mapping[str, grpc.StatusCode] = {
    "draining": grpc.StatusCode.UNAVAILABLE,
    "engine_crashed": grpc.StatusCode.UNAVAILABLE,
    "engine_unreachable": grpc.StatusCode.UNAVAILABLE,
}
"Status codes of error codes that need another one than their class."

HTTP_2 = (2, 0)


def status_of(error: EarshotError) -> grpc.StatusCode:
    """Returns the status code of an error."""
    by_class = next(STATUS_BY_CLASS[cls] for cls in type(error).__mro__ if cls in STATUS_BY_CLASS)
    return STATUS_BY_CODE.get(error.code, by_class)


class GrpcEdge:
    """Lets calls in, and turns their errors into status codes."""

    def __init__(self, gate: AccessGate, settings: KserveSettings, metrics: Metrics) -> None:
        """`gate`: access rules of the listener. `settings`: networks whose clients need no key."""
        self._gate, self._settings, self._metrics = gate, settings, metrics
        self._limiter, self._running = KeyAttemptLimiter(), KeyRequests()
        if gate.keys is not None:
            gate.keys.on_revoked.append(self._running.end)

    @asynccontextmanager
    async def call(
        self, context: "ServicerContext[bytes, bytes]", method: str, scope: KeyScope = "models"
    ) -> AsyncIterator[None]:
        """Runs one call in the `with` block, after its key was checked. An error in the block ends
        the call with its status code."""
        try:
            async with self._admitted(context, scope):
                yield
        except Exception as error:
            failure = self.failure_of(error, method)
            self._count(method, status_of(failure))
            retry = getattr(failure, "retry_after_s", None)
            metadata = (("retry-after", str(retry)),) if retry is not None else ()
            await context.abort(status_of(failure), str(failure), metadata)
        else:
            self._count(method, grpc.StatusCode.OK)

    def _count(self, method: str, status: grpc.StatusCode) -> None:
        """Counts a call as a request of HTTP, which it is."""
        route = f"/{SERVICE}/{method}"
        self._metrics.count("earshot_http_requests", route=route, status=status.name)

    def failure_of(self, error: Exception, method: str) -> EarshotError:
        """Returns the error that the client gets. A bug is logged."""
        failure = expected_failure(error)
        if failure is None:
            logger.error("gRPC %s failed", method, exc_info=error)
            failure = EarshotError("internal error; see the server's log")
        self._metrics.count("earshot_errors", code=failure.code)
        logger.info("gRPC %s -> %s (%s)", method, status_of(failure).name, failure.code)
        return failure

    @asynccontextmanager
    async def _admitted(
        self, context: "ServicerContext[bytes, bytes]", scope: KeyScope
    ) -> AsyncIterator[None]:
        """Checks the key. Raises Unauthorized, Forbidden."""
        metadata = {key: str(value) for key, value in context.invocation_metadata() or ()}
        peer = address_of_peer(context.peer())
        caller = AccessRequest(
            host=None,
            origin=metadata.get("origin"),
            token=token_of(metadata.get("authorization"), None, metadata.get("x-api-key")),
            is_forwarded=is_forwarded(metadata, HTTP_2),
            peer=peer,
        )
        is_trusted_address = (
            not caller.is_forwarded and caller.origin is None and self._settings.admits(peer)
        )
        try:
            access = self._gate.admit(
                caller, is_public=False, scope=scope, is_trusted_address=is_trusted_address
            )
        except Unauthorized:
            if caller.token is not None:
                await self._limiter.slow_down(peer)
            raise
        access.check_scope()
        key = access.named_key
        reset = CALLER_KEY.set(key)
        try:
            if key is None or self._gate.keys is None:
                yield
                return
            self._gate.keys.count_request(key)
            async with self._running.added(key):
                yield
        finally:
            CALLER_KEY.reset(reset)


def address_of_peer(peer: str) -> str:
    """Returns the address in gRPC's form of a peer: `ipv4:1.2.3.4:5` or `ipv6:[::1]:5`, whose
    brackets may be percent-encoded."""
    _, _, rest = unquote(peer).partition(":")
    return rest.rpartition(":")[0].strip("[]")
