"""Engines that take a set time and do nothing: the rest of a measurement is the server's own time.

`bench.voice.stub_server` writes the configuration of a server with them. The server loads them by
their module paths, like any other engine.
"""
