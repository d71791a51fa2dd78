"""Engine that runs a vLLM server in an environment of its own, and generates answers with it.

`earshot engines install vllm` makes the environment. vLLM needs one exact version of torch, so it
cannot share the server's environment. See docs/vllm.md.
"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from core.errors import EngineMissing
from engines.llm.vllm.settings import NAME, Settings

if TYPE_CHECKING:
    from engines.llm.server_llm import ServerLlm

__all__ = ["Settings", "create"]


def create(settings: Settings) -> "ServerLlm":
    """Returns the engine without starting it; `ServerLlm.running` starts it.

    Raises EngineMissing without Linux, environment or model; ConfigError for bad options.
    """
    from engines.llm.server_llm import ServerLlm
    from engines.llm.vllm.command_line import check_options, completion_server, model_argument
    from engines.llm.vllm.environment import read_environment

    if sys.platform != "linux":
        raise EngineMissing("llm", NAME, "runs on Linux only")
    check_options(settings)
    folder = Path(settings.environment).expanduser()
    environment = read_environment(folder) if settings.environment else None
    if environment is None:
        where = f" in {folder}" if settings.environment else ""
        how = "`earshot engines install vllm` makes its environment"
        raise EngineMissing("llm", NAME, f"not installed{where}; {how}")
    model_argument(settings)
    return ServerLlm(completion_server(settings, environment))
