"""Engines that take a fixed time and compute nothing, to measure the server's own time.

`bench.voice.stub_server` writes the configuration of a server with them. The server loads them by
their module paths, like any other engine.
"""
