"""`earshot bench voice`: arguments, one run, its table, JSON and chart.

Exit codes: 0 every turn was answered; 1 one was not, or failed; 2 wrong arguments or an unreadable
file; 5 no connection, or it was refused or lost; 130 interrupted.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from msgspec.json import encode
from msgspec.json import format as pretty

from bench.client.http import Address
from bench.client.realtime import CannotConnect, ClientTransport, ConnectionLost, SessionRequest
from bench.server.own_server import own_server
from bench.talk.command import TalkExitCode, add_connection, address_of, session_request
from bench.tools.stats import machine
from bench.voice import chart, client_latency
from bench.voice.clips import clips
from bench.voice.measure import VoicePlan, VoiceTurn, run
from bench.voice.stub_server import parse_stub_delays
from bench.voice.summary import answered_reports, median_stages, summary, table, voice_to_voice
from core.errors import EarshotError, RequestError, expected_failure
from core.progress_bar import ProgressBar

TRANSPORTS: Sequence[ClientTransport] = ("webrtc", "ws", "live")
"`live` is GPT-Live over a WebSocket."

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
        "--beside",
        choices=TRANSPORTS,
        help="measure this transport too, turn by turn in alternation, in a table of its own",
    )
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
    transports = [options.transport] + ([options.beside] if options.beside else [])
    found: dict[ClientTransport, list[VoiceTurn]] = {name: [] for name in transports}
    async with _server(options) as address:
        plans = [_plan(options, address, transport) for transport in transports]
        rounds = options.turns if options.beside else 1
        with ProgressBar(sys.stderr, "turns") as progress:
            progress.start(options.clients * options.turns * len(plans))
            for number in range(rounds):
                for plan in plans:
                    clip = number % len(utterances)
                    turned = [*utterances[clip:], *utterances[:clip]]
                    found[plan.transport] += await run(plan, turned, partial(_show, progress))
    for plan in plans:
        await _report(options, plan, found[plan.transport], measured_on)
    every = [turn for turns in found.values() for turn in turns]
    return (
        TalkExitCode.ANSWERED
        if len(answered_reports(every)) == len(every)
        else TalkExitCode.NOT_ANSWERED
    )


def _plan(options: argparse.Namespace, address: Address, transport: ClientTransport) -> VoicePlan:
    """Returns the plan of a run; of one round where two transports alternate."""
    return VoicePlan(
        address,
        transport,
        _session_request(options),
        1 if options.beside else options.turns,
        options.clients,
        options.timeout,
        options.reconnect,
    )


async def _report(
    options: argparse.Namespace, plan: VoicePlan, found: Sequence[VoiceTurn], measured_on: str
) -> None:
    """Prints the table or the JSON of one transport, and writes its chart."""
    path_ms = await client_latency.one_way_ms(plan.transport)
    title = _title(options, plan)
    if options.json:
        report = {"title": title, "measured_on": measured_on, **summary(found, path_ms)}
        print(pretty(encode(report)).decode())
    else:
        print(f"\n{title}; {measured_on}\n")
        print(table(found, path_ms))
    if options.svg and (times_ms := voice_to_voice(found)):
        _write(options.svg, chart.chart(title, measured_on, median_stages(found), times_ms))


def _check(options: argparse.Namespace) -> None:
    """Raises RequestError for options that exclude each other."""
    given = [name for name in ("url", "stubs", "config") if getattr(options, name) is not None]
    if len(given) > 1:
        raise RequestError(f"--{given[0]} and --{given[1]} cannot be used together")
    if options.beside == options.transport:
        raise RequestError("--beside takes another transport than --transport")
    if options.beside and options.svg:
        raise RequestError("--svg draws one transport: leave --beside out")


def _session_request(options: argparse.Namespace) -> SessionRequest:
    request = session_request(options)
    if options.wait is None:
        return request
    return replace(request, turn_detection="server_vad", silence_ms=options.wait)


@asynccontextmanager
async def _server(options: argparse.Namespace) -> AsyncIterator[Address]:
    """Yields the address of the server in `--url`, or of a server that is started for the run."""
    if options.url is not None:
        yield address_of(options)
        return
    with TemporaryDirectory(prefix="earshot-voice-") as folder:
        config = options.stubs.write(Path(folder)) if options.stubs else options.config
        async with own_server(["--config", str(config)] if config else []) as server:
            yield server.address


def _title(options: argparse.Namespace, plan: VoicePlan) -> str:
    request = plan.request
    wait = (
        f"server_vad {request.silence_ms} ms"
        if request.silence_ms is not None
        else request.turn_detection
    )
    engines = f", stub engines {options.stubs} ms" if options.stubs else ""
    return f"{plan.transport}, {wait}{engines}, {plan.clients} x {options.turns} turns"


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


def _wait(text: str) -> int:
    wait_ms = int(text)
    if not 0 <= wait_ms <= 10_000:
        raise argparse.ArgumentTypeError("must be 0 to 10000 ms")
    return wait_ms
