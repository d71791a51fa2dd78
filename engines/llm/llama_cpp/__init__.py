"""Engine that starts llama.cpp's server with a GGUF file, watches it and asks it over HTTP.

`earshot engines install llama_cpp` builds the server; one on the PATH does as well. See
docs/llm.md.
"""

import sys
from typing import TYPE_CHECKING

from core.errors import EngineMissing
from engines.llm.llama_cpp.settings import NAME, Settings

if TYPE_CHECKING:
    from engines.llm.server_llm import ServerLlm

__all__ = ["Settings", "create"]


def create(settings: Settings) -> "ServerLlm":
    """Returns the engine, not started: enter its `running()`.

    Raises EngineMissing without Linux, llama-server or a usable model; ConfigError for bad options.
    """
    from engines.llm.llama_cpp.command_line import check, completion_server
    from engines.llm.llama_cpp.files import find_model, find_program
    from engines.llm.server_llm import ServerLlm

    if sys.platform != "linux":
        raise EngineMissing("llm", NAME, "runs on Linux only")
    check(settings)
    return ServerLlm(completion_server(settings, find_program(settings), find_model(settings)))
