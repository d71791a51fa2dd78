"""Imports of the process from which tests/server/forked.py forks `earshot`."""

import gc
from importlib import import_module

for module in (
    "bench.cli",
    "server.commands.doctor",
    "server.commands.models.command",
    "server.commands.replay.command",
    "server.config.show",
    "server.serve",
):
    import_module(module)
gc.freeze()  # a collection in a fork would copy all memory that it shares
