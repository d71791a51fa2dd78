"""Runs `earshot talk`, alone or against a fake server."""

import argparse
import asyncio

from bench.talk import command as talk
from tests.bench.client.fake_realtime_server import Behaviour, FakeRealtime


def talk_to(behaviour: Behaviour, *arguments: object) -> tuple[int, FakeRealtime]:
    """Runs the command against a fake server. Returns the exit code and the server."""

    async def run() -> tuple[int, FakeRealtime]:
        fake = FakeRealtime(behaviour)
        async with asyncio.timeout(20), fake.running() as url:
            code = await asyncio.to_thread(command, "--url", url, *arguments)
        return code, fake

    return asyncio.run(run())


def command(*arguments: object) -> int:
    """Runs the command and returns its exit code."""
    parser = argparse.ArgumentParser(prog="earshot talk")
    talk.add_arguments(parser)
    return talk.main(parser.parse_args([str(argument) for argument in arguments]))
