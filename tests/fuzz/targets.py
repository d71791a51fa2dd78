"""All fuzz targets."""

from itertools import chain

from tests.fuzz import (
    bodies,
    calls,
    files,
    forms,
    home_assistant,
    images,
    ingrain,
    kserve,
    live,
    llama_cpp,
    mcp_server,
    names,
    ollama,
    realtime,
    ssml,
    streams,
    telephone,
    was,
    willow,
    wyoming,
    xiaozhi,
)

TARGETS = tuple(
    chain.from_iterable(
        module.TARGETS
        for module in (
            *(realtime, calls, forms, willow, was, wyoming, xiaozhi, names, home_assistant, bodies),
            *(files, streams, ingrain, llama_cpp, kserve, images, ollama, ssml, mcp_server),
            *(telephone, live),
        )
    )
)
