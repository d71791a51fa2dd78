"""Measures how soon the answer stops when the user speaks over it, and which sounds stop it.

    python -m bench.measurements.barge_in [--url URL --key KEY] [--transport ws] [--turns 30]
    python -m bench.measurements.barge_in --backchannels [--asr pocketsphinx] [--model PATH]

Over each answer the next question is asked in real time, as soon as the answer is audible. The
server reports at /metrics how long playout continued after it had detected the speech. The metrics
are read after each turn, so that every single value is known. Over a WebSocket the client owns
playout and stops at the server's event, so the time to this event counts.
"""

import argparse
import asyncio
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bench.client.conversation import open_conversation
from bench.client.http import Address
from bench.client.microphone import RATE_HZ
from bench.client.realtime import SessionRequest
from bench.client.turn import TurnLog
from bench.measurements.resources import metrics
from bench.server.own_server import named_or_own_server
from bench.tools.clips import synthesise
from bench.tools.speech_bounds import find_speech_bounds
from bench.tools.stats import machine, percentile
from core.audio import Pcm
from core.errors import EarshotError

QUESTIONS = ("what is the date today", "how is the weather in paris", "what time is it")
"The answer to each of them takes at least a second to speak."

PAUSE = "earshot_barge_in_pause_seconds"
"Metric: seconds from the detection of speech to the pause of the answer."

LIMIT_MS = 60
"Target for the 95th percentile."
TIMEOUT_S = 10
"Longest wait for an answer."


@dataclass(slots=True)
class BargeInEvents:
    """Events of one turn."""

    answer_began: asyncio.Event = field(default_factory=asyncio.Event)
    "Set once the answer is audible."
    reported_at: float | None = None
    "Time of the event that reports the user's speech to the client."
    _was_speech: bool = False

    def begin(self) -> None:
        """Resets the events for a new turn."""
        self.answer_began.clear()
        self.reported_at = None

    def change(self, log: TurnLog, *, is_paced: bool) -> None:
        """Records a change of the turn. is_paced: the server owns playout (WebRTC)."""
        if log.is_playing or (not is_paced and log.reply):
            self.answer_began.set()
        if log.is_speech and not self._was_speech and self.answer_began.is_set():
            self.reported_at = self.reported_at or log.last_at
        self._was_speech = log.is_speech


@dataclass(slots=True)
class BargeInResult:
    """Results of all turns; times in ms."""

    barge_ins: int = 0
    "Number of answers that were spoken over."
    pauses: list[float] = field(default_factory=list[float])
    """Times from the server's decision to stop to the first packet that it did not send; WebRTC
    only."""
    report_delays_ms: list[float] = field(default_factory=list[float])
    "Times from the sending of the first speech sample to the event that reports speech."


def pauses_ms(before: Mapping[str, float], after: Mapping[str, float]) -> list[float]:
    """Returns the pauses between two readings of the metrics: exact if there was one, else their
    mean, repeated."""
    names = (f"{PAUSE}_sum", f"{PAUSE}_count")
    total, count = (after.get(name, 0) - before.get(name, 0) for name in names)
    return [1000 * total / count] * round(count) if count else []


async def talk_over(address: Address, args: argparse.Namespace) -> BargeInResult:
    """Asks a question and speaks the next one over the answer, turn by turn."""
    events, found = BargeInEvents(), BargeInResult()
    clips = [await asyncio.to_thread(synthesise, text) for text in QUESTIONS]
    opened = open_conversation(
        address,
        args.transport,
        SessionRequest(language="en"),
        timeout_s=TIMEOUT_S,
        on_change=lambda log: events.change(log, is_paced=args.transport == "webrtc"),
    )
    async with opened as (conversation, client):

        async def speak_over(clip: Pcm) -> float | None:
            """Speaks over the answer; returns when its first speech sample was sent."""
            start = await client.microphone.say(clip)
            begin = find_speech_bounds(clip, RATE_HZ).begin or 0
            return client.microphone.spoken_at(start + begin)

        before = await metrics(address)
        for turn in range(args.turns):
            events.begin()
            async with asyncio.TaskGroup() as tasks:
                question = tasks.create_task(conversation.say(clips[turn % len(clips)]))
                first = tasks.create_task(events.answer_began.wait())
                await asyncio.wait((question, first), return_when=asyncio.FIRST_COMPLETED)
                first.cancel()
                if not question.done():
                    found.barge_ins += 1
                    spoken_at = await speak_over(clips[(turn + 1) % len(clips)])
                    if spoken_at is not None and events.reported_at is not None:
                        found.report_delays_ms.append(1000 * (events.reported_at - spoken_at))
            after = await metrics(address)
            found.pauses += pauses_ms(before, after)
            before = after
    return found


def line(name: str, values: Sequence[float]) -> str:
    """Returns percentiles of the values in ms, as one line."""
    p50, p95 = (percentile(values, percent) for percent in (50, 95))
    return f"{name}: p50 {p50:.1f}, p95 {p95:.1f}, max {max(values):.1f} ms of {len(values)}"


async def run(args: argparse.Namespace) -> int:
    """Runs the measurement and prints it; returns the exit code."""
    print(machine())
    async with named_or_own_server(args.url, args.key) as address:
        found = await talk_over(address, args)
    print(f"{found.barge_ins} answers spoken over")
    if found.report_delays_ms:
        print(line("first sample of speech to the event", found.report_delays_ms))
    if args.transport == "ws":
        return 0 if found.report_delays_ms else 1
    if not found.pauses:
        raise ValueError("no answer was spoken over")
    print(line("decision to silence", found.pauses), f"(target {LIMIT_MS})")
    print("all: " + " ".join(f"{value:.1f}" for value in sorted(found.pauses)))
    return 0 if percentile(found.pauses, 95) <= LIMIT_MS else 1


def classify_all(args: argparse.Namespace) -> int:
    """Prints the confusion table. Runs in this process and in virtual time, without server or
    microphone."""
    from bench.measurements.interruptions import classify, confusion, load_engines, synthetic

    found = []
    engines = load_engines(args.asr, args.model)
    for overlap in synthetic():
        result = classify(overlap, engines)
        print(
            f"{overlap.kind}\t{overlap.name}\t{result.outcome}\t{result.pause_ms} ms"
            f"\t{result.words}"
        )
        found.append(result)
    print()
    for row in confusion(found):
        print(row)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 if the target is met, 1 if not, 5 after an error."""
    parser = argparse.ArgumentParser(prog="python -m bench.measurements.barge_in")
    parser.add_argument("--url", help="address of a server; default: one is started for the run")
    parser.add_argument("--key")
    parser.add_argument("--transport", choices=("webrtc", "ws"), default="webrtc")
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument(
        "--backchannels",
        action="store_true",
        help="measure how backchannels and interruptions are classified",
    )
    parser.add_argument(
        "--asr", default="pocketsphinx", help="with --backchannels: name of the recogniser"
    )
    parser.add_argument("--model", default="", help="with --asr: name of its model")
    args = parser.parse_args(argv)
    try:
        return classify_all(args) if args.backchannels else asyncio.run(run(args))
    except (EarshotError, ValueError) as error:
        print(f"bench.measurements.barge_in: {error}", file=sys.stderr)
        return 5


if __name__ == "__main__":
    sys.exit(main())
