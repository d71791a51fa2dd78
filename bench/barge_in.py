"""How soon the answer falls silent when somebody speaks over it.

    python -m bench.barge_in [--url URL --key KEY] [--transport ws] [--turns 20]

Over each answer the next question is asked as soon as it sounds, in real time. The server tells
at /metrics how long its speaker went on after its ear had decided that somebody speaks.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence

from bench.address import Address
from bench.clips import spoken
from bench.footprint import metrics
from bench.own_server import given_or_own
from bench.realtime import Wish
from bench.talker import talking
from bench.turn import TurnLog
from core.errors import EarshotError

QUESTIONS = ("what is the date today", "how is the weather in paris", "what time is it")
"Whatever is answered to them takes a second to say."

BUCKET = 'earshot_barge_in_pause_seconds_bucket{le="'
LIMIT_MS = 60
TIMEOUT_S = 10


async def talk_over(address: Address, args: argparse.Namespace) -> int:
    """Answers that were spoken over."""
    sounds, overs = asyncio.Event(), 0

    def changed(log: TurnLog) -> None:
        if log.is_playing or (args.transport == "ws" and log.reply):
            sounds.set()

    clips = [await asyncio.to_thread(spoken, text) for text in QUESTIONS]
    opened = talking(
        address, args.transport, Wish(language="en"), timeout_s=TIMEOUT_S, on_change=changed
    )
    async with opened as (talker, client):
        for turn in range(args.turns):
            sounds.clear()
            async with asyncio.TaskGroup() as tasks:
                asked = tasks.create_task(talker.say(clips[turn % len(clips)]))
                first = tasks.create_task(sounds.wait())
                await asyncio.wait((asked, first), return_when=asyncio.FIRST_COMPLETED)
                first.cancel()
                if not asked.done():
                    overs += 1
                    await client.mouth.say(clips[(turn + 1) % len(clips)])
    return overs


def counts(before: Mapping[str, float], after: Mapping[str, float]) -> Iterator[tuple[float, int]]:
    """Upper bound in ms, and pauses that took at most that."""
    for name, value in after.items():
        if name.startswith(BUCKET):
            bound = float(name.removeprefix(BUCKET).removesuffix('"}'))
            yield 1000 * bound, round(value - before.get(name, 0))


def percentile_ms(found: Sequence[tuple[float, int]], percent: float) -> float:
    """The bound of the bucket in which it lies. Raises ValueError where nothing was counted."""
    total = max((count for _, count in found), default=0)
    if total == 0:
        raise ValueError("no answer was spoken over")
    return min(bound for bound, count in found if count >= total * percent / 100)


async def run(args: argparse.Namespace) -> int:
    async with given_or_own(args.url, args.key) as address:
        before = await metrics(address)
        overs = await talk_over(address, args)
        found = list(counts(before, await metrics(address)))
    paused = max(count for _, count in found)
    p50, p95 = (percentile_ms(found, percent) for percent in (50, 95))
    print(f"{overs} answers spoken over, {paused} pauses after the decision that somebody speaks")
    print(f"p50 at most {p50:g} ms, p95 at most {p95:g} ms (target {LIMIT_MS})")
    return 0 if p95 <= LIMIT_MS else 1


def main(argv: Sequence[str] | None = None) -> int:
    """0: the target is met; 1: it is not."""
    parser = argparse.ArgumentParser(prog="python -m bench.barge_in")
    parser.add_argument("--url", help="a server; without it, one is started")
    parser.add_argument("--key")
    parser.add_argument("--transport", choices=("webrtc", "ws"), default="webrtc")
    parser.add_argument("--turns", type=int, default=20)
    try:
        return asyncio.run(run(parser.parse_args(argv)))
    except (EarshotError, ValueError) as error:
        print(f"bench.barge_in: {error}", file=sys.stderr)
        return 5


if __name__ == "__main__":
    sys.exit(main())
