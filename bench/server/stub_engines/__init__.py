"""Engines that take a set time and do nothing: what is left in a measurement is the server's own.

`bench.voice.stub_server` writes the configuration that starts a server with them. They are engines
as any other: the server loads them by their module paths.
"""
