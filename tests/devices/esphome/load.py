"""Load of the ESPHome door: one satellite, then many that talk, while others are idle.

    python -m tests.devices.esphome.load [--talking 20] [--idle 200] [--turns 5]

The satellites are the simulated ones of the tests, so it runs in a checkout, and needs the extra
esphome. The engines take no time. Measured are the time from the end of speech to the first sound
at the satellite, and the server's memory with and without the idle satellites.
"""

import argparse
import asyncio
import socket
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.client.satellite import CHUNK_SAMPLES, Satellite, api
from bench.measurements.resources import use_of
from bench.peers.systems import free_port
from bench.server.own_server import own_server
from bench.tools.clips import COMMANDS, synthesise
from bench.tools.stats import machine, markdown, percentile
from bench.tools.utterance_audio import make_utterance
from bench.voice.stub_server import StubDelays
from core.audio import ASR_RATE_HZ, Pcm
from core.errors import EarshotError

CONNECT_LIMIT_S = 120.0
"Longest wait for all satellites. The server tries again after 1 s, later up to a minute."

SETTLE_S = 3.0
"Wait before the memory is read."

TURN_LIMIT_S = 30.0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.devices.esphome.load")
    parser.description = __doc__
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--talking", type=int, default=20, help="satellites that talk (20)")
    parser.add_argument("--idle", type=int, default=200, help="satellites that are idle (200)")
    parser.add_argument("--turns", type=int, default=5, help="turns of each satellite (5)")
    options = parser.parse_args(arguments)
    try:
        asyncio.run(_measure(options.talking, options.idle, options.turns))
    except KeyboardInterrupt:
        return 130
    except EarshotError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


async def _measure(talking: int, idle: int, turns: int) -> None:
    pcm, end = make_utterance(COMMANDS[0], synthesise(COMMANDS[0])).at_asr_rate()
    ports = _free_ports(talking + idle)
    satellites = [Satellite(mac=_mac(number)) for number in range(talking + idle)]
    with TemporaryDirectory(prefix="earshot-esphome-") as folder:
        file = _config(Path(folder), ports)
        async with own_server(["--config", str(file)]) as server, AsyncExitStack() as stack:

            async def connect(numbers: range) -> None:
                for number in numbers:
                    await stack.enter_async_context(satellites[number].listening(ports[number]))
                async with asyncio.timeout(CONNECT_LIMIT_S):
                    for number in numbers:
                        await satellites[number].subscribed()
                await asyncio.sleep(SETTLE_S)

            await connect(range(talking))
            await _turns(satellites[:1], pcm, end, 1)  # warm-up
            one = await _turns(satellites[:1], pcm, end, 2 * turns)
            before_mb = use_of(server.pid).pss_mb
            await connect(range(talking, talking + idle))
            idle_kb = 1024 * (use_of(server.pid).pss_mb - before_mb) / max(1, idle)
            many = await _turns(satellites[:talking], pcm, end, turns)
    print(f"{machine()}; {idle} idle satellites: {idle_kb:.0f} KiB each\n")
    rows = [
        (str(count), *(f"{percentile(times, part):.0f} ms" for part in (50, 95, 100)))
        for count, times in ((1, one), (talking, many))
    ]
    print(markdown(("talking", "median", "p95", "longest"), rows))


def _free_ports(count: int) -> list[int]:
    """Returns so many ports that are free at this moment."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


def _mac(number: int) -> str:
    digits = f"{number:012X}"
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def _config(folder: Path, ports: Sequence[int]) -> Path:
    file = StubDelays(0, 0, 0).write(folder)
    named = [f'[esphome.devices.n{port}]\nhost = "127.0.0.1"\nport = {port}\n' for port in ports]
    own = f"[esphome]\nsounds_port = {free_port()}\n"
    file.write_text("\n".join((file.read_text(), own, *named)), encoding="utf-8")
    return file


async def _turns(satellites: Sequence[Satellite], pcm: Pcm, end: int, turns: int) -> list[float]:
    """Returns the times from the end of speech to the first sound, in ms. The satellites begin one
    after the other, within one utterance."""
    step_s = len(pcm) / ASR_RATE_HZ / len(satellites)
    async with asyncio.TaskGroup() as tasks:
        work = [
            tasks.create_task(_talk(satellite, pcm, end, turns, number * step_s))
            for number, satellite in enumerate(satellites)
        ]
    return [ms for task in work for ms in task.result()]


async def _talk(
    satellite: Satellite, pcm: Pcm, end: int, turns: int, delay_s: float
) -> list[float]:
    await asyncio.sleep(delay_s)
    return [await _one_turn(satellite, pcm, end) for _ in range(turns)]


async def _one_turn(satellite: Satellite, pcm: Pcm, end: int) -> float:
    loop = asyncio.get_running_loop()
    satellite.first_sound_at = None
    async with asyncio.timeout(TURN_LIMIT_S):
        satellite.start()
        await satellite.until(satellite.names)
        began_at, sent = loop.time(), 0
        while not satellite.names() & {"STT_VAD_END", "RUN_END"}:
            at = sent % len(pcm) if sent < len(pcm) else end  # then the room goes on
            chunk = pcm[at : at + CHUNK_SAMPLES]
            sent += len(chunk)
            await asyncio.sleep(began_at + sent / ASR_RATE_HZ - loop.time())
            satellite.send(api.VoiceAssistantAudio(data=chunk.astype("<i2").tobytes()))
        await satellite.until(lambda: "RUN_END" in satellite.names())
        first_sound_at = await _first_sound(satellite)
    await asyncio.sleep(SETTLE_S)  # the answer is played
    return 1000 * (first_sound_at - began_at - end / ASR_RATE_HZ)


async def _first_sound(satellite: Satellite) -> float:
    while (at := satellite.first_sound_at) is None:
        await satellite.changed.wait()
    return at


if __name__ == "__main__":
    sys.exit(main())
