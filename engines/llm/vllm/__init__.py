"""Engine that starts a vLLM server in an environment of its own, watches it and asks it over HTTP.

`earshot engines install vllm` makes the environment. vLLM pins its own version of torch, so it
cannot share ours. See docs/vllm.md.
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
    """Returns the engine, not started: enter its `running()`.

    Raises EngineMissing without Linux, environment or model; ConfigError for bad options.
    """
    from engines.llm.server_llm import ServerLlm
    from engines.llm.vllm.command_line import check, completion_server, model_of
    from engines.llm.vllm.environment import read_environment

    if sys.platform != "linux":
        raise EngineMissing("llm", NAME, "runs on Linux only")
    check(settings)
    folder = Path(settings.environment).expanduser()
    environment = read_environment(folder) if settings.environment else None
    if environment is None:
        where = f" in {folder}" if settings.environment else ""
        how = "`earshot engines install vllm` makes its environment"
        raise EngineMissing("llm", NAME, f"not installed{where}; {how}")
    model_of(settings)
    return ServerLlm(completion_server(settings, environment))
