"""`earshot bench embeddings`, `rerank` and `chat`: arguments, the runs, their table and JSON.

Exit codes: 0 every request was answered; 1 one was not; 2 wrong arguments; 5 no connection, or the
first request was refused; 130 interrupted.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence

from msgspec.json import encode
from msgspec.json import format as pretty

from bench.client.realtime import CannotConnect
from bench.load import bodies
from bench.load.clients import LoadPlan, LoadReport, check_server, run
from bench.talk.command import TalkExitCode, add_server, address_of
from bench.tools.stats import machine, markdown, percentile
from core.errors import RequestError
from core.progress_bar import ProgressBar

EPILOG = """Requests per second is the number of answered requests by the wall time of all clients
together. One request before the first run loads the model, and is not counted. See docs/bench.md.
"""

PURPOSES: Mapping[str, str] = {
    "embeddings": "measure how many texts a server turns into vectors in a second",
    "rerank": "measure how fast a server sorts documents by a query",
    "chat": "measure how fast a server writes: first token, tokens in a second",
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
    clients = [1, 4, 8] if kind == "chat" else [1, 16]
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
        default=8 if kind == "chat" else 200,
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
    if kind == "chat":
        parser.add_argument("--prompt", default="Tell me a story.", metavar="TEXT")
        parser.add_argument(
            "--max-tokens", type=_positive, default=64, metavar="N", help="tokens (%(default)s)"
        )
        return
    parser.add_argument(
        "--words",
        type=_positive,
        default=8 if kind == "embeddings" else 60,
        metavar="N",
        help="words of each text (%(default)s)",
    )
    if kind == "embeddings":
        parser.add_argument(
            "--inputs", type=_positive, default=1, metavar="N", help="texts of a request (1)"
        )
    else:
        parser.add_argument(
            "--documents", type=_positive, default=100, metavar="N", help="documents (%(default)s)"
        )


_PATHS = {
    "embeddings": "/v1/embeddings",
    "rerank": "/v1/rerank",
    "chat": "/v1/chat/completions",
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
    plans = [
        LoadPlan(address, kind, clients, options.requests, options.timeout, is_kept)
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


def _kind(options: argparse.Namespace) -> bodies.LoadKind:
    match options.measurement:
        case "embeddings":
            return bodies.embeddings(options.model, words=options.words, inputs=options.inputs)
        case "rerank":
            return bodies.rerank(options.model, words=options.words, documents=options.documents)
        case _:
            return bodies.chat(options.model, prompt=options.prompt, max_tokens=options.max_tokens)


def _request_size(options: argparse.Namespace) -> str:
    match options.measurement:
        case "embeddings":
            return f"{options.inputs} x {options.words} words"
        case "rerank":
            return f"{options.documents} documents of {options.words} words"
        case _:
            return f"at most {options.max_tokens} tokens"


def table(reports: Sequence[LoadReport]) -> str:
    """Returns the table of all runs, in Markdown."""
    is_streamed = reports[0].plan.kind.is_streamed
    head = ["clients", "connections", "answered", "errors", "requests/s", "p50 ms", "p95 ms"]
    if is_streamed:
        head += ["tokens/s", "first token p50 ms", "first token p95 ms"]
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
    if report.plan.kind.is_streamed:
        first_ms = [answer.first_ms for answer in report.answered if answer.first_ms is not None]
        row += [f"{report.tokens_per_s:.1f}", *_percentiles(first_ms)]
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
            "errors": dict(report.errors),
            "answers": report.answers,
        }
        for report in reports
    ]
    return pretty(encode({"measured_on": measured_on, "runs": runs})).decode()


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number
