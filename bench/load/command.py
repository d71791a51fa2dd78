"""`earshot bench embeddings`, `rerank`, `chat` and `tts`: arguments, runs, their table and JSON.

Exit codes: 0 every request was answered; 1 one was not; 2 wrong arguments; 5 no connection, or the
first request was refused; 130 interrupted.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import randbits

from msgspec.json import encode
from msgspec.json import format as pretty

from bench.client.http import Address
from bench.client.realtime import CannotConnect
from bench.load import bodies
from bench.load.clients import LoadPlan, LoadReport, check_server, run
from bench.load.ramp import Ramp, rates, run_ramp
from bench.load.ramp_files import rate_table, write_files
from bench.talk.command import TalkExitCode, add_server, address_of
from bench.tools.stats import machine, markdown, percentile
from core.errors import RequestError
from core.terminal import ProgressBar

EPILOG = """Requests per second is the number of answered requests by the wall time of all clients
together. One request before the first run loads the model, and is not counted. See docs/bench.md.
"""

PURPOSES: Mapping[str, str] = {
    "embeddings": "measure how many texts a server turns into vectors in a second",
    "rerank": "measure how fast a server sorts documents by a query",
    "chat": "measure how fast a server writes: first token, tokens in a second",
    "tts": "measure how fast a server speaks: first sound, gaps, seconds of sound in a second",
}
"Purpose of each load test, for the help."

CONNECTIONS: Mapping[str, Sequence[bool]] = {
    "kept": (True,),
    "fresh": (False,),
    "both": (True, False),
}
"Choice of `--connections` -> values of `LoadPlan.is_kept` to run."


def add_arguments(parser: argparse.ArgumentParser, kind: str) -> None:
    """Adds the options of one load test. kind: a key of PURPOSES."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description = f"Sends requests of many clients to {_PATHS[kind]} of any server."
    parser.epilog = EPILOG
    add_server(parser, "the configured server on this machine")
    parser.add_argument("--model", default="default", metavar="NAME", help="name of the model")
    clients = [1, 4, 8] if kind in ("chat", "tts") else [1, 16]
    parser.add_argument(
        "--clients",
        type=_positive,
        nargs="+",
        default=clients,
        metavar="N",
        help=f"clients at the same time, one run for each number ({' '.join(map(str, clients))})",
    )
    parser.add_argument(
        "--requests",
        type=_positive,
        default=8 if kind in ("chat", "tts") else 200,
        metavar="N",
        help="requests of a run, of all its clients together (%(default)s)",
    )
    parser.add_argument(
        "--connections",
        choices=list(CONNECTIONS),
        default="kept",
        help="whether clients keep their connection or open one for each request (%(default)s)",
    )
    parser.add_argument(
        "--json", action="store_true", help="print every answer as JSON instead of the table"
    )
    if kind == "tts":
        _add_speech_arguments(parser)
    if kind == "chat":
        parser.add_argument("--prompt", default="Tell me a story.", metavar="TEXT")
        parser.add_argument(
            "--max-tokens", type=_positive, default=64, metavar="N", help="tokens (%(default)s)"
        )
        return
    parser.add_argument(
        "--words",
        type=_positive,
        default={"embeddings": 8, "tts": 12}.get(kind, 60),
        metavar="N",
        help="words of each text (%(default)s)",
    )
    if kind == "embeddings":
        parser.add_argument(
            "--inputs", type=_positive, default=1, metavar="N", help="texts of a request (1)"
        )
    elif kind == "rerank":
        parser.add_argument(
            "--documents", type=_positive, default=100, metavar="N", help="documents (%(default)s)"
        )


def _add_speech_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--voice", default="alloy", metavar="ID", help="voice (%(default)s)")
    parser.add_argument(
        "--qps-ramp",
        type=_ramp_rates,
        metavar="FROM:TO:STEP",
        help="send requests at rates that rise, whether or not earlier ones are answered",
    )
    parser.add_argument(
        "--hold",
        type=_positive,
        default=20,
        metavar="S",
        help="seconds at each rate of the ramp (%(default)s)",
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("tts_ramp"),
        metavar="FOLDER",
        help="where the ramp writes config.json, two CSV files and a chart (%(default)s)",
    )


_PATHS = {
    "embeddings": "/v1/embeddings",
    "rerank": "/v1/rerank",
    "chat": "/v1/chat/completions",
    "tts": "/v1/audio/speech",
}


def main(options: argparse.Namespace) -> int:
    """Runs the load test that `options.measurement` names; returns the exit code."""
    try:
        return asyncio.run(_main(options))
    except KeyboardInterrupt:
        return TalkExitCode.INTERRUPTED
    except CannotConnect as error:
        print(f"earshot: {error}", file=sys.stderr)
        return TalkExitCode.CONNECTION_FAILED
    except RequestError as error:
        print(f"earshot: {error}", file=sys.stderr)
        return TalkExitCode.USAGE


async def _main(options: argparse.Namespace) -> int:
    address, kind, measured_on = address_of(options), _kind(options), machine()
    await check_server(address, kind, options.timeout)
    if getattr(options, "qps_ramp", None):
        return await _ramp(options, address, kind, measured_on)
    plans = [
        LoadPlan(address, _kind(options), clients, options.requests, options.timeout, is_kept)
        for clients in options.clients
        for is_kept in CONNECTIONS[options.connections]
    ]
    with ProgressBar(sys.stderr, "requests") as progress:
        progress.start(options.requests * len(plans))
        reports = [await run(plan, on_answer=progress.add) for plan in plans]
    if options.json:
        print(_json(reports, measured_on))
    else:
        print(f"{kind.name}, {options.model}, {_request_size(options)}; {measured_on}\n")
        print(table(reports))
    failed = any(report.errors for report in reports)
    return TalkExitCode.NOT_ANSWERED if failed else TalkExitCode.ANSWERED


async def _ramp(
    options: argparse.Namespace, address: Address, kind: bodies.LoadKind, measured_on: str
) -> int:
    """Runs the ramp, writes its files and prints a row for each rate."""
    ramp = Ramp(options.qps_ramp, options.hold)
    with ProgressBar(sys.stderr, "requests") as progress:
        progress.start(len(ramp.starts()))
        answers = await run_ramp(ramp, address, kind, options.timeout, progress.add)
    settings = {
        "url": address.url,
        "model": options.model,
        "voice": options.voice,
        "words": options.words,
        "rates_per_s": ramp.rates_per_s,
        "hold_s": ramp.hold_s,
        "timeout_s": options.timeout,
        "measured_on": measured_on,
    }
    await asyncio.to_thread(write_files, options.output, settings, answers)
    print(f"{kind.name}, {options.model}; {measured_on}\n")
    print(rate_table(answers))
    print(f"\nwritten to {options.output}")
    failed = any(one.answer.error for one in answers)
    return TalkExitCode.NOT_ANSWERED if failed else TalkExitCode.ANSWERED


def _kind(options: argparse.Namespace) -> bodies.LoadKind:
    match options.measurement:
        case "embeddings":
            return bodies.embeddings(options.model, words=options.words, inputs=options.inputs)
        case "rerank":
            return bodies.rerank(options.model, words=options.words, documents=options.documents)
        case "tts":
            return bodies.speech(
                options.model, words=options.words, voice=options.voice, seed=randbits(32)
            )
        case _:
            return bodies.chat(options.model, prompt=options.prompt, max_tokens=options.max_tokens)


def _request_size(options: argparse.Namespace) -> str:
    match options.measurement:
        case "embeddings":
            return f"{options.inputs} x {options.words} words"
        case "rerank":
            return f"{options.documents} documents of {options.words} words"
        case "tts":
            return f"3 and {options.words} words"
        case _:
            return f"at most {options.max_tokens} tokens"


def table(reports: Sequence[LoadReport]) -> str:
    """Returns the table of all runs, in Markdown."""
    form = reports[0].plan.kind.form
    head = ["clients", "connections", "answered", "errors", "requests/s", "p50 ms", "p95 ms"]
    if form == "text":
        head += ["tokens/s", "first token p50 ms", "first token p95 ms"]
    elif form == "sound":
        head += ["sound s/s", "first sound p50 ms", "first sound p95 ms", "gap p95 ms"]
    return markdown(head, [_row(report) for report in reports])


def _row(report: LoadReport) -> list[str]:
    errors = ", ".join(f"{count} x {error}" for error, count in report.errors.most_common())
    took_ms = [answer.took_ms for answer in report.answered]
    row = [
        str(report.plan.clients),
        "kept" if report.plan.is_kept else "fresh",
        str(len(took_ms)),
        errors or "0",
        f"{report.requests_per_s:.1f}",
        *_percentiles(took_ms),
    ]
    first_ms = [answer.first_ms for answer in report.answered if answer.first_ms is not None]
    if report.plan.kind.form == "text":
        row += [f"{report.tokens_per_s:.1f}", *_percentiles(first_ms)]
    elif report.plan.kind.form == "sound":
        gaps_ms = [answer.gap_ms for answer in report.answered]
        row += [f"{report.sound_per_s:.1f}", *_percentiles(first_ms), _percentiles(gaps_ms)[1]]
    return row


def _percentiles(values: Sequence[float]) -> tuple[str, str]:
    if not values:
        return "-", "-"
    return f"{percentile(values, 50):.1f}", f"{percentile(values, 95):.1f}"


def _json(reports: Sequence[LoadReport], measured_on: str) -> str:
    runs: list[dict[str, object]] = [
        {
            "clients": report.plan.clients,
            "is_kept": report.plan.is_kept,
            "wall_s": report.wall_s,
            "requests_per_s": report.requests_per_s,
            "tokens_per_s": report.tokens_per_s,
            "sound_per_s": report.sound_per_s,
            "errors": dict(report.errors),
            "answers": report.answers,
        }
        for report in reports
    ]
    return pretty(encode({"measured_on": measured_on, "runs": runs})).decode()


def _ramp_rates(text: str) -> tuple[float, ...]:
    try:
        first, last, step = map(float, text.split(":"))
        return rates(first, last, step)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"{text!r}: expected FROM:TO:STEP in requests per second, as 0.5:5:0.5; {error}"
        ) from None


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
