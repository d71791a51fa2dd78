"""Engine that runs llama.cpp's server with a GGUF file, and generates answers with it.

`earshot engines install llama_cpp` builds the server. Without that, the one on the PATH is used.
See docs/llm.md.
"""

import sys
from typing import TYPE_CHECKING

from core.errors import EngineMissing
from engines.llm.llama_cpp.settings import NAME, Settings

if TYPE_CHECKING:
    from engines.llm.server_llm import ServerLlm

__all__ = ["Settings", "create"]


def create(settings: Settings) -> "ServerLlm":
    """Returns the engine without starting it; `ServerLlm.running` starts it.

    Raises EngineMissing without Linux, llama-server or a usable model; ConfigError for bad options.
    """
    from engines.llm.llama_cpp.command_line import check_options, completion_server
    from engines.llm.llama_cpp.files import find_model, find_program
    from engines.llm.server_llm import ServerLlm

    if sys.platform != "linux":
        raise EngineMissing("llm", NAME, "runs on Linux only")
    check_options(settings)
    return ServerLlm(completion_server(settings, find_program(settings), find_model(settings)))
