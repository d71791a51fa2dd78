"""KServe's gRPC service, `inference.GRPCInferenceService`."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from time import perf_counter_ns
from typing import Any

import grpc
from grpc.aio import ServicerContext

from core.errors import ConfigError, RequestError
from server.grpc.edge import GrpcEdge
from web.kserve.messages import (
    DATA_TYPES,
    SERVICE,
    decode,
    decode_infer,
    encode,
    infer_response,
)
from web.kserve.service import KserveService

GRACE_S = 1.0
"Longest wait for open calls, in seconds. It is short, because calls have drained before."

MAX_STREAMS = 256
"Largest number of open calls of one connection."

Answer = Callable[[Any], Awaitable[Mapping[str, Any]]]
"Returns the fields of the answer to a message."


class KserveGrpcDoor:
    """Handles the calls. A call is let in before its message is read: a message may have 128 MB."""

    def __init__(self, service: KserveService, edge: GrpcEdge) -> None:
        self._service, self._edge = service, edge

    def handler(self) -> grpc.GenericRpcHandler:
        """Returns the handler of all calls."""
        answers: Mapping[str, Answer] = {
            "ServerLive": self._server_live,
            "ServerReady": self._server_ready,
            "ServerMetadata": self._server_metadata,
            "ModelReady": self._model_ready,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._model_statistics,
            "RepositoryIndex": self._repository_index,
            "RepositoryModelLoad": self._load,
            "RepositoryModelUnload": self._unload,
        }
        handlers = {name: self._unary(name, answer) for name, answer in answers.items()}
        handlers["ModelInfer"] = grpc.stream_unary_rpc_method_handler(self._infer)
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(self._stream)
        return grpc.method_handlers_generic_handler(SERVICE, handlers)

    def _unary(self, name: str, answer: Answer) -> Any:
        """Returns the handler of a call with one message and one answer."""

        async def call(
            messages: AsyncIterator[bytes], context: "ServicerContext[bytes, bytes]"
        ) -> bytes:
            async with self._edge.call(context, name):
                message = decode(f"{name}Request", await _only(messages))
                return encode(f"{name}Response", await answer(message))
            raise AssertionError  # unreachable: `edge.call` raises every error

        return grpc.stream_unary_rpc_method_handler(call)

    async def _infer(
        self, messages: AsyncIterator[bytes], context: "ServicerContext[bytes, bytes]"
    ) -> bytes:
        async with self._edge.call(context, "ModelInfer"):
            return encode(
                "ModelInferResponse", await self._computed(await _only(messages), context)
            )
        raise AssertionError

    async def _stream(
        self, messages: AsyncIterator[bytes], context: "ServicerContext[bytes, bytes]"
    ) -> AsyncIterator[bytes]:
        """Answers the messages of a stream one after the other. An error of one message is its
        answer, and the stream goes on."""
        async with self._edge.call(context, "ModelStreamInfer"):
            async for message in messages:
                try:
                    fields: Mapping[str, object] = {
                        "infer_response": await self._computed(message, context)
                    }
                except Exception as error:
                    failure = self._edge.failure_of(error, "ModelStreamInfer")
                    fields = {"error_message": str(failure)}
                yield encode("ModelStreamInferResponse", fields)

    async def _computed(
        self, message: bytes, context: "ServicerContext[bytes, bytes]"
    ) -> dict[str, Any]:
        arrived_ns = perf_counter_ns()
        with self._service.place():
            request = decode_infer(message)
            return infer_response(await self._service.infer(request, context.peer(), arrived_ns))

    async def _server_live(self, _: object) -> Mapping[str, Any]:
        return {"live": True}

    async def _server_ready(self, _: object) -> Mapping[str, Any]:
        return {"ready": self._service.is_ready()}

    async def _server_metadata(self, _: object) -> Mapping[str, Any]:
        return self._service.server_metadata()

    async def _model_ready(self, message: Any) -> Mapping[str, Any]:
        return {"ready": self._service.is_model_ready(message.name, message.version)}

    async def _model_metadata(self, message: Any) -> Mapping[str, Any]:
        return self._service.metadata(message.name, message.version)

    async def _model_config(self, message: Any) -> Mapping[str, Any]:
        fields = self._service.config(message.name, message.version)
        for tensor in (*fields["input"], *fields["output"]):
            tensor["data_type"] = DATA_TYPES[tensor["data_type"]]
        return {"config": fields}

    async def _model_statistics(self, message: Any) -> Mapping[str, Any]:
        return self._service.statistics(message.name, message.version)

    async def _repository_index(self, message: Any) -> Mapping[str, Any]:
        return {"models": self._service.index(only_ready=message.ready)}

    async def _load(self, message: Any) -> Mapping[str, Any]:
        await self._service.load(message.model_name)
        return {}

    async def _unload(self, message: Any) -> Mapping[str, Any]:
        await self._service.unload(message.model_name)
        return {}


@asynccontextmanager
async def run_grpc(
    door: KserveGrpcDoor, addresses: Sequence[str], max_message_bytes: int
) -> AsyncIterator[None]:
    """Serves the calls at these addresses with port until the context is left. Raises
    ConfigError."""
    server = grpc.aio.server(
        options=(
            ("grpc.max_receive_message_length", max_message_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.max_concurrent_streams", MAX_STREAMS),
            # Otherwise gRPC would share its port with another program, without an error.
            ("grpc.so_reuseport", 0),
        )
    )
    server.add_generic_rpc_handlers((door.handler(),))
    try:
        for address in addresses:
            server.add_insecure_port(address)
    except RuntimeError as error:
        raise ConfigError(f"config.kserve.grpc_port: {error}") from error
    await server.start()
    try:
        yield
    finally:
        await server.stop(GRACE_S)


async def _only(messages: AsyncIterator[bytes]) -> bytes:
    """Returns the one message of a call. Raises RequestError."""
    async for message in messages:
        return message
    raise RequestError("the call has no message")
