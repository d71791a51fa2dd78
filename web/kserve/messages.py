"""Messages of KServe's gRPC service, and their bytes. Their classes are made from a table at run
time, in a pool of their own, so that no generated code is kept and clients in the same process do
not collide with it.

The numbers are those of the public definition:
https://github.com/triton-inference-server/common/blob/main/protobuf/grpc_service.proto
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError

from core.errors import RequestError
from web.kserve.tensors import (
    BYTES,
    InferRequest,
    InferResponse,
    Parameter,
    Tensor,
    by_name,
    bytes_of,
    invalid,
    tensor_of_bytes,
    tensor_of_values,
)

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"

_NAME_AND_VERSION = "name:string=1 version:string=2"
_TENSOR = "name:string=1 datatype:string=2 shape:int64*=3 parameters:Parameter*=4"
_MODEL = "repository_name:string=1 model_name:string=2"

SCHEMA: Mapping[str, str] = {
    "ServerLiveRequest": "",
    "ServerLiveResponse": "live:bool=1",
    "ServerReadyRequest": "",
    "ServerReadyResponse": "ready:bool=1",
    "ServerMetadataRequest": "",
    "ServerMetadataResponse": "name:string=1 version:string=2 extensions:string*=3",
    "ModelReadyRequest": _NAME_AND_VERSION,
    "ModelReadyResponse": "ready:bool=1",
    "ModelMetadataRequest": _NAME_AND_VERSION,
    "TensorMetadata": "name:string=1 datatype:string=2 shape:int64*=3",
    "ModelMetadataResponse": (
        "name:string=1 versions:string*=2 platform:string=3 inputs:TensorMetadata*=4"
        " outputs:TensorMetadata*=5"
    ),
    "ModelConfigRequest": _NAME_AND_VERSION,
    "ModelConfigResponse": "config:ModelConfig=1",
    "ModelConfig": (
        "name:string=1 platform:string=2 max_batch_size:int32=4 input:ModelInput*=5"
        " output:ModelOutput*=6 backend:string=17"
    ),
    # The data type is an enumeration there; its bytes are those of int32.
    "ModelInput": "name:string=1 data_type:int32=2 dims:int64*=4 optional:bool=8",
    "ModelOutput": "name:string=1 data_type:int32=2 dims:int64*=3",
    "InferParameter": (
        "bool_param:bool=1 int64_param:int64=2 string_param:string=3 double_param:double=4"
        " uint64_param:uint64=5"
    ),
    # An entry of a map has the bytes of a message with these two fields.
    "Parameter": "key:string=1 value:InferParameter=2",
    "InferTensorContents": (
        "bool_contents:bool*=1 int_contents:int32*=2 int64_contents:int64*=3"
        " uint_contents:uint32*=4 uint64_contents:uint64*=5 fp32_contents:float*=6"
        " fp64_contents:double*=7 bytes_contents:bytes*=8"
    ),
    "InferInputTensor": f"{_TENSOR} contents:InferTensorContents=5",
    "InferRequestedOutputTensor": "name:string=1 parameters:Parameter*=2",
    "ModelInferRequest": (
        "model_name:string=1 model_version:string=2 id:string=3 parameters:Parameter*=4"
        " inputs:InferInputTensor*=5 outputs:InferRequestedOutputTensor*=6"
        " raw_input_contents:bytes*=7"
    ),
    "InferOutputTensor": f"{_TENSOR} contents:InferTensorContents=5",
    "ModelInferResponse": (
        "model_name:string=1 model_version:string=2 id:string=3 parameters:Parameter*=4"
        " outputs:InferOutputTensor*=5 raw_output_contents:bytes*=6"
    ),
    "ModelStreamInferResponse": "error_message:string=1 infer_response:ModelInferResponse=2",
    "ModelStatisticsRequest": _NAME_AND_VERSION,
    "StatisticDuration": "count:uint64=1 ns:uint64=2",
    "InferStatistics": (
        "success:StatisticDuration=1 fail:StatisticDuration=2 queue:StatisticDuration=3"
        " compute_input:StatisticDuration=4 compute_infer:StatisticDuration=5"
        " compute_output:StatisticDuration=6"
    ),
    "InferBatchStatistics": (
        "batch_size:uint64=1 compute_input:StatisticDuration=2 compute_infer:StatisticDuration=3"
        " compute_output:StatisticDuration=4"
    ),
    "ModelStatistics": (
        "name:string=1 version:string=2 last_inference:uint64=3 inference_count:uint64=4"
        " execution_count:uint64=5 inference_stats:InferStatistics=6"
        " batch_stats:InferBatchStatistics*=7"
    ),
    "ModelStatisticsResponse": "model_stats:ModelStatistics*=1",
    "RepositoryIndexRequest": "repository_name:string=1 ready:bool=2",
    "ModelIndex": "name:string=1 version:string=2 state:string=3 reason:string=4",
    "RepositoryIndexResponse": "models:ModelIndex*=1",
    "RepositoryModelLoadRequest": _MODEL,
    "RepositoryModelLoadResponse": "",
    "RepositoryModelUnloadRequest": _MODEL,
    "RepositoryModelUnloadResponse": "",
}
"Message -> its fields as `name:type=number`; `*` behind the type: the field is repeated."

DATA_TYPES: Mapping[str, int] = {
    "BOOL": 1,
    "UINT8": 2,
    "UINT16": 3,
    "UINT32": 4,
    "UINT64": 5,
    "INT8": 6,
    "INT16": 7,
    "INT32": 8,
    "INT64": 9,
    "FP16": 10,
    "FP32": 11,
    "FP64": 12,
    BYTES: 13,
}
"Datatype -> its number in a model's configuration."

_CONTENTS: Mapping[str, str] = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    BYTES: "bytes_contents",
}
"Datatype -> field with its elements. FP16 has none; it is always sent as bytes."


def decode(name: str, data: bytes) -> Any:
    """Returns the message of that name. Raises RequestError for other bytes."""
    message = _classes()[name]()
    try:
        message.ParseFromString(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        raise RequestError(f"these bytes are no {name}", code="invalid_value") from None
    return message


def encode(name: str, fields: Mapping[str, object]) -> bytes:
    """Returns the bytes of a message with these fields."""
    return bytes(_classes()[name](**fields).SerializeToString())


def decode_infer(data: bytes) -> InferRequest:
    """Returns a request to compute. Raises RequestError."""
    message = decode("ModelInferRequest", data)
    raw = message.raw_input_contents
    if raw and len(raw) != len(message.inputs):
        raise invalid(
            "raw_input_contents", f"it has {len(raw)} entries for {len(message.inputs)} inputs"
        )
    return InferRequest(
        message.model_name,
        message.model_version,
        message.id,
        {
            parameter.key: value
            for parameter in message.parameters
            if (value := _value(parameter)) is not None
        },
        by_name(
            [
                _tensor(tensor, raw[index] if raw else None)
                for index, tensor in enumerate(message.inputs)
            ]
        ),
        tuple(tensor.name for tensor in message.outputs),
    )


def infer_response(response: InferResponse) -> dict[str, Any]:
    """Returns the fields of a `ModelInferResponse`."""
    return {
        "model_name": response.model,
        "model_version": response.version,
        "id": response.id,
        "outputs": [
            {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
            for tensor in response.outputs
        ],
        "raw_output_contents": [bytes_of(tensor) for tensor in response.outputs],
    }


def _tensor(message: Any, raw: bytes | None) -> Tensor:
    shape = tuple(message.shape)
    if raw is not None:
        return tensor_of_bytes(message.name, message.datatype, shape, raw)
    field = _CONTENTS.get(message.datatype)
    values = list(getattr(message.contents, field)) if field else []
    return tensor_of_values(message.name, message.datatype, shape, values)


def _value(parameter: Any) -> Parameter | None:
    """Returns the value of a parameter: its first field that was sent."""
    fields = parameter.value.ListFields()
    value: Parameter | None = fields[0][1] if fields else False
    return value


@cache
def _classes() -> Mapping[str, Any]:
    """Returns the classes of all messages by name."""
    file = descriptor_pb2.FileDescriptorProto(name="kserve.proto", package=PACKAGE, syntax="proto3")
    for name, fields in SCHEMA.items():
        message = file.message_type.add(name=name)
        for field in fields.split():
            field_name, _, rest = field.partition(":")
            field_type, _, number = rest.partition("=")
            scalar = field_type.rstrip("*")
            added = message.field.add(
                name=field_name,
                number=int(number),
                label=(
                    descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
                    if field_type.endswith("*")
                    else descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL
                ),
            )
            if scalar in SCHEMA:
                added.type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
                added.type_name = f".{PACKAGE}.{scalar}"
            else:
                type_name = f"TYPE_{scalar.upper()}"
                added.type = descriptor_pb2.FieldDescriptorProto.Type.Value(type_name)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
        for name in SCHEMA
    }
