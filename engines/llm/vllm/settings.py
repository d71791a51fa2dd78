"""Settings of the engine `vllm`."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

NAME = "vllm"

PortNumber = Annotated[int, Meta(ge=0, le=65535)]
TokenCount = Annotated[int, Meta(ge=64)]


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Settings of a vLLM that we start. For one that runs already, use the engine `openai`."""

    model: str
    "A folder with weights, or ORGANISATION/NAME on a hub: vLLM then downloads at the first start."
    environment: str = ""
    "Folder where `earshot engines install vllm` put it; the server fills this in."
    port: PortNumber = 0
    "Port on loopback; 0: a free one."
    max_model_len: TokenCount | None = None
    "Tokens of prompt and answer together; None: the model's maximum, memory permitting."
    gpu_memory_utilization: Annotated[float, Meta(gt=0, le=1)] = 0.7
    "Share of the GPU's memory that vLLM reserves. Speech recognition may need the rest."
    cpu_cache_gb: Annotated[int, Meta(ge=1, le=512)] = 2
    "Memory for the cache of earlier prompts (KV cache) without a GPU, in GB."
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    "Number type; auto: as the weights say on a GPU, float32 on a processor."
    tool_parser: str = ""
    """Format in which this model writes tool calls, by vLLM's name: hermes (Qwen), llama3_json,
    mistral, ... Without it the model is given no tools, because vLLM would refuse the request."""
    languages: tuple[str, ...] = ()
    "ISO 639-1 codes of what the model understands; empty: any."
    request: dict[str, Any] = {}
    """Options of the engine `openai`, with which vLLM is asked: temperature, max_output_tokens,
    starts_thinking, extra_body, timeouts."""
    extra_args: tuple[str, ...] = ()
    "Further options of `vllm serve`, one argument each."
    start_timeout_s: Annotated[float, Meta(gt=0, le=86400)] = 900.0
    "Longest start. Large weights take minutes from a slow disk, and longer from a hub."
