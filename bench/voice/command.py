"""`earshot bench voice`: arguments, one run, its table, JSON and chart.

Exit codes: 0 every turn was answered; 1 one was not, or failed; 2 wrong arguments or an unreadable
file; 5 no connection, or it was refused or lost; 130 interrupted.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, get_args

from msgspec.json import encode
from msgspec.json import format as pretty

from bench.client.http import Address
from bench.client.realtime import CannotConnect, ClientTransport, ConnectionLost, SessionRequest
from bench.client.telephone import TelephoneSystem
from bench.server.own_server import NO_VARIABLES, own_server
from bench.talk.command import TalkExitCode, add_connection, address_of, session_request
from bench.tools.stats import machine
from bench.tools.utterance_audio import BenchUtterance
from bench.voice import chart, client_latency
from bench.voice.clips import clips
from bench.voice.measure import VoicePlan, VoiceTurn, run
from bench.voice.stub_server import parse_stub_delays
from bench.voice.summary import (
    answered_reports,
    compared,
    comparison,
    median_stages,
    summary,
    table,
    voice_to_voice,
)
from bench.voice.telephone import free_lines
from core.errors import EarshotError, RequestError, expected_failure
from core.terminal import ProgressBar

if TYPE_CHECKING:
    from bench.voice.satellite import MeasuredSatellite

TRANSPORTS: Sequence[ClientTransport] = ("webrtc", "ws", "live")
"`live` is GPT-Live over a WebSocket."

DOORS = (*TRANSPORTS, *get_args(TelephoneSystem), "esphome")
"Ways to reach a server that can be compared."

EPILOG = """Without --url a server is started for the run, with default settings or those of
--config. Voice to voice is measured at the client: from the last audible sample sent to the first
audible sample received. See docs/bench.md.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `bench voice`."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = "Talks to a server and measures how long it takes to answer by voice."
    parser.epilog = EPILOG
    parser.add_argument(
        "clips",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="recordings to play; default: built-in utterances of a synthetic voice",
    )
    parser.add_argument(
        "--turns",
        type=_positive,
        default=20,
        metavar="N",
        help="number of turns of each client (20)",
    )
    parser.add_argument(
        "--clients",
        type=_positive,
        default=1,
        metavar="M",
        help="number of clients at the same time (1)",
    )
    parser.add_argument(
        "--reconnect", action="store_true", help="open a new connection for each turn"
    )
    add_connection(parser, "one that is started for the run", TRANSPORTS)
    parser.add_argument(
        "--wait",
        type=_wait,
        metavar="MS",
        help="use server_vad with this silence in ms, instead of --turn-detection",
    )
    parser.add_argument(
        "--stubs",
        type=parse_stub_delays,
        metavar="ASR,LLM,TTS",
        help=(
            "replace the engines by stubs that wait this many ms, to measure only the server's own"
            " time"
        ),
    )
    parser.add_argument(
        "--beside",
        type=_doors,
        default=(),
        metavar="DOOR,DOOR",
        help=(
            f"also measure these ({', '.join(DOORS)}) with the same recordings, in rounds, each in"
            " turn, and print the differences; needs an own server"
        ),
    )
    parser.add_argument(
        "--rounds", type=_positive, default=4, metavar="N", help="rounds of --beside (4)"
    )
    parser.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="TOML file with the settings of the server that is started for the run",
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="print all results, turn by turn, as JSON instead of the table",
    )
    parser.add_argument("--svg", type=Path, metavar="FILE", help="write a chart to this file")


def main(options: argparse.Namespace) -> int:
    """Runs the measurement; returns the exit code."""
    try:
        return asyncio.run(_main(options))
    except KeyboardInterrupt:
        return TalkExitCode.INTERRUPTED
    except BaseExceptionGroup as group:
        # All clients fail for the same reason, so the first error is enough.
        known = expected_failure(group)
        if known is None:
            raise
        return _print_error(known)
    except EarshotError as error:
        return _print_error(error)


async def _main(options: argparse.Namespace) -> int:
    _check(options)
    utterances = clips(options.clips)
    measured_on = machine()
    path_ms = await client_latency.one_way_ms(options.transport)
    if options.beside:
        return await _compare(options, utterances, measured_on)
    async with _server(options) as address:
        plan = VoicePlan(
            address,
            options.transport,
            _session_request(options),
            options.turns,
            options.clients,
            options.timeout,
            options.reconnect,
        )
        with ProgressBar(sys.stderr, "turns") as progress:
            progress.start(plan.clients * plan.turns)
            found = await run(plan, utterances, partial(_show, progress))
    title = _title(options, plan)
    if options.json:
        report = {"title": title, "measured_on": measured_on, **summary(found, path_ms)}
        print(pretty(encode(report)).decode())
    else:
        print(f"\n{title}; {measured_on}\n")
        print(table(found, path_ms))
    if options.svg and (times_ms := voice_to_voice(found)):
        _write(options.svg, chart.chart(title, measured_on, median_stages(found), times_ms))
    return (
        TalkExitCode.ANSWERED
        if len(answered_reports(found)) == len(found)
        else TalkExitCode.NOT_ANSWERED
    )


async def _compare(
    options: argparse.Namespace, utterances: Sequence[BenchUtterance], measured_on: str
) -> int:
    """Measures the transport and the doors of `--beside` in rounds; returns the exit code."""
    lines, found = free_lines(), dict[str, list[list[VoiceTurn]]]()
    satellite = _satellite() if "esphome" in options.beside else None
    turns = -(-options.turns // options.rounds)
    doors = (options.transport, *options.beside)
    async with AsyncExitStack() as stack:
        environ = lines.environ
        if satellite is not None:
            await stack.enter_async_context(satellite.listening())
            environ = {**environ, **satellite.environ}
        address = await stack.enter_async_context(_server(options, environ))
        with ProgressBar(sys.stderr, "turns") as progress:
            progress.start(options.rounds * len(doors) * turns)
            for number in range(options.rounds):
                # the first door of a round is another one each time
                for door in (*doors[number % len(doors) :], *doors[: number % len(doors)]):
                    request, timeout_s = _session_request(options), options.timeout
                    plan = VoicePlan(
                        address,
                        door,
                        request,
                        turns,
                        1,
                        timeout_s,
                        lines=lines,
                        satellite=satellite,
                    )
                    each = await run(plan, utterances, partial(_show, progress))
                    found.setdefault(door, []).append(each)
    if options.json:
        print(pretty(encode({"measured_on": measured_on, "doors": compared(found)})).decode())
    else:
        print(f"\n{options.rounds} rounds of {turns} turns; {measured_on}\n")
        print(comparison(found))
    every = [turn for rounds in found.values() for each in rounds for turn in each]
    is_answered = len(answered_reports(every)) == len(every)
    return TalkExitCode.ANSWERED if is_answered else TalkExitCode.NOT_ANSWERED


def _satellite() -> "MeasuredSatellite":
    """Returns a satellite to measure. Raises RequestError without its library."""
    try:
        from bench.voice.satellite import MeasuredSatellite
    except ModuleNotFoundError as error:
        raise RequestError(
            f"--beside esphome needs the package {error.name}: `earshot extras add esphome`"
        ) from error
    return MeasuredSatellite()


def _check(options: argparse.Namespace) -> None:
    """Raises RequestError for options that exclude each other."""
    if options.beside and (options.url is not None or options.clients > 1 or options.svg):
        raise RequestError("--beside cannot be used with --url, --clients or --svg")
    if options.transport in options.beside:
        raise RequestError(f"--beside {options.transport}: it is that of --transport already")
    given = [name for name in ("url", "stubs", "config") if getattr(options, name) is not None]
    if len(given) > 1:
        raise RequestError(f"--{given[0]} and --{given[1]} cannot be used together")


def _session_request(options: argparse.Namespace) -> SessionRequest:
    request = session_request(options)
    if options.wait is None:
        return request
    return replace(request, turn_detection="server_vad", silence_ms=options.wait)


@asynccontextmanager
async def _server(
    options: argparse.Namespace, environ: Mapping[str, str] = NO_VARIABLES
) -> AsyncIterator[Address]:
    """Yields the address of the server in `--url`, or of a server that is started for the run."""
    if options.url is not None:
        yield address_of(options)
        return
    with TemporaryDirectory(prefix="earshot-voice-") as folder:
        config = options.stubs.write(Path(folder)) if options.stubs else options.config
        arguments = ["--config", str(config)] if config else []
        async with own_server(arguments, environ=environ) as server:
            yield server.address


def _title(options: argparse.Namespace, plan: VoicePlan) -> str:
    request = plan.request
    wait = (
        f"server_vad {request.silence_ms} ms"
        if request.silence_ms is not None
        else request.turn_detection
    )
    engines = f", stub engines {options.stubs} ms" if options.stubs else ""
    return f"{plan.transport}, {wait}{engines}, {plan.clients} x {plan.turns} turns"


def _show(progress: ProgressBar, turn: VoiceTurn) -> None:
    """Prints the line of a finished turn above the bar."""
    report = turn.report
    took = report.voice_to_voice_ms
    shown = report.status if took is None else f"{took:.0f} ms"
    words = f"{report.transcript} -> {report.reply}{report.error}"
    progress.add()
    progress.note(f"{turn.client + 1}.{turn.turn + 1:<3} {shown:>10}  {words}")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{file}: {error.strerror or error}") from error


def _print_error(error: EarshotError) -> int:
    print(f"earshot: {error}", file=sys.stderr)
    match error:
        case CannotConnect() | ConnectionLost():
            return TalkExitCode.CONNECTION_FAILED
        case RequestError():
            return TalkExitCode.USAGE
        case _:
            return TalkExitCode.NOT_ANSWERED


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _doors(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if not set(names) <= set(DOORS):
        raise argparse.ArgumentTypeError(f"must be of {', '.join(DOORS)}")
    return names


def _wait(text: str) -> int:
    wait_ms = int(text)
    if not 0 <= wait_ms <= 10_000:
        raise argparse.ArgumentTypeError("must be 0 to 10000 ms")
    return wait_ms
