"""What can be set."""

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

NAME = "vllm"

PortNumber = Annotated[int, Meta(ge=0, le=65535)]
TokenCount = Annotated[int, Meta(ge=64)]


class Settings(Struct, frozen=True, forbid_unknown_fields=True):
    """Of a vLLM that we start. For one that runs already, take the engine `openai`."""

    model: str
    "A folder with weights, or ORGANISATION/NAME of a hub: vLLM then downloads at the first start."
    environment: str = ""
    "Where `earshot engines install vllm` put it; the server fills this in."
    port: PortNumber = 0
    "On loopback; 0 takes a free one."
    max_model_len: TokenCount | None = None
    "Tokens of prompt and answer together; None: all that the model can, memory permitting."
    gpu_memory_utilization: Annotated[float, Meta(gt=0, le=1)] = 0.7
    "Share of the GPU that vLLM takes for good. Speech recognition may want the rest."
    cpu_cache_gb: Annotated[int, Meta(ge=1, le=512)] = 2
    "Memory for what it remembers of conversations, where there is no GPU."
    dtype: Literal["auto", "float32", "float16", "bfloat16"] = "auto"
    "auto: as the weights say on a GPU, float32 on a processor."
    tool_parser: str = ""
    """How this model writes tool calls, in vLLM's words: hermes (Qwen), llama3_json, mistral, ...
    Without it the model is told of no tools: vLLM would refuse the request."""
    languages: tuple[str, ...] = ()
    "ISO 639-1 codes of what the model understands; empty: any."
    request: dict[str, Any] = {}
    """Options of the engine `openai`, through which vLLM is asked: temperature, max_output_tokens,
    starts_thinking, extra_body, timeouts."""
    extra_args: tuple[str, ...] = ()
    "More options of `vllm serve`, word by word."
    start_timeout_s: Annotated[float, Meta(gt=0, le=86400)] = 900.0
    "Large weights take minutes from a slow disk, and longer from a hub."
