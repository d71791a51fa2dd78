"""Voice to voice at the client's ear, turn by turn, and where the server says it went.

python -m bench.v2v --turns 20
python -m bench.v2v --url https://host:8443 --key K --turns 20 question.wav
"""

import argparse
import asyncio
import sys
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from bench.address import Address
from bench.clips import COMMANDS, spoken
from bench.own_server import own_server
from bench.show import STAGE_NAMES
from bench.stats import machine, markdown, spread
from bench.talk import GAP_S, add_connection, address_of, read_recording, wish_of
from bench.talker import Report, talking
from core.audio import Pcm
from core.errors import EarshotError, RequestError

FAILED, USAGE = 1, 2

WARM_UP_TURNS = 1
"The first turn of a fresh server also pays for what is loaded at first use; it is not counted."


async def measure(options: argparse.Namespace, clips: Sequence[Pcm]) -> list[Report]:
    """One report per turn; the warm-up is left out."""
    async with AsyncExitStack() as stack:
        if options.url is None:
            address = (await stack.enter_async_context(own_server())).address
        else:
            address = address_of(options)
        if not options.reconnect:
            return await _conversation(
                options, address, clips, range(-WARM_UP_TURNS, options.turns)
            )
        reports: list[Report] = []
        for turn in range(-WARM_UP_TURNS, options.turns):
            reports += await _conversation(options, address, clips, range(turn, turn + 1))
        return reports


async def _conversation(
    options: argparse.Namespace, address: Address, clips: Sequence[Pcm], turns: range
) -> list[Report]:
    """These turns over one connection."""
    reports: list[Report] = []
    transport, wish = options.transport, wish_of(options)
    async with talking(address, transport, wish, timeout_s=options.timeout) as (talker, _):
        for turn in turns:
            report = await talker.say(clips[turn % len(clips)])
            if turn >= 0:
                reports.append(report)
                print(progress(turn, report), file=sys.stderr, flush=True)
            await asyncio.sleep(GAP_S)
    return reports


def progress(turn: int, report: Report) -> str:
    """One line per turn, for people who wait."""
    took = report.voice_to_voice_ms
    shown = report.status if took is None else f"{took:.0f} ms"
    return f"{turn + 1:3} {shown:>10}  {report.transcript} -> {report.reply}{report.error}"


def table(reports: Sequence[Report]) -> str:
    """Markdown for docs/performance.md; turns that were not answered are only counted."""
    answered = [report for report in reports if report.status == "answered"]
    rows = [
        ["voice to voice, at the client", *spread(_known(r.voice_to_voice_ms for r in answered))],
        ["transcript, at the client", *spread(_known(r.transcript_ms for r in answered))],
        ["first words after speech begins", *spread(_known(r.first_words_ms for r in answered))],
        ["response latency, by the server", *spread(_known(r.server_ms for r in answered))],
    ]
    for stage in STAGE_NAMES:
        times = [s.took_ms for report in answered for s in report.stages if s.name == stage]
        rows.append([f"- {STAGE_NAMES[stage]}", *spread(times)])
    shown = [row for row in rows if row[-1] != "0"]
    lines = [markdown(["ms", "p50", "p95", "min", "max", "turns"], shown)]
    if len(answered) < len(reports):
        lines.append(f"\n{len(reports) - len(answered)} of {len(reports)} turns were not answered.")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.v2v", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("clips", nargs="*", type=Path, help="recordings; default: our own voice's")
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--reconnect", action="store_true", help="a new connection for each turn")
    add_connection(parser)
    options = parser.parse_args(arguments)
    measured_on = machine()
    try:
        clips = [read_recording(path) for path in options.clips] or list(map(spoken, COMMANDS))
        reports = asyncio.run(measure(options, clips))
    except KeyboardInterrupt:
        return 130
    except EarshotError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return USAGE if isinstance(error, RequestError) else FAILED
    print(f"\n{options.transport}, {options.turn_detection}, {len(reports)} turns; {measured_on}\n")
    print(table(reports))
    return 0 if any(report.status == "answered" for report in reports) else FAILED


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


if __name__ == "__main__":
    sys.exit(main())
