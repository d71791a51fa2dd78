r"""Measures whether words are lost and sentences cut by a pause in the middle of a sentence.

    python -m bench.measurements.pauses [--url URL --key KEY] [--transport webrtc] \
        [--detection server_vad]

Sentences of two pieces with 300 to 600 ms of silence between them are spoken by eSpeak to a server
with its default engines. They are sent as the page does (`semantic_vad`), or as clients of the
Realtime API do by default (`server_vad`). A sentence with errors is repeated without its pause:
only errors that then disappear are blamed on the pause.
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.client.conversation import ConversationClient, TurnReport, open_conversation
from bench.client.latency_probe import speech_span
from bench.client.microphone import RATE_HZ
from bench.client.realtime import SessionRequest
from bench.client.turn import TurnLog
from bench.server.own_server import named_or_own_server
from bench.tools.clips import synthesise
from bench.tools.word_errors import spoken_words, word_errors
from core.audio import Pcm, silence
from core.errors import EarshotError

SENTENCES = (
    ("turn on the", "kitchen lights"),
    ("turn off the", "bedroom lights"),
    ("set a timer for", "ten minutes"),
    ("set a timer", "for fifty minutes"),
    ("open the", "bathroom door"),
    ("close the", "office blinds"),
    ("what is the temperature", "in the living room"),
    ("what is the temperature in the", "garage"),
    ("add milk", "to the shopping list"),
    ("add bread and", "butter to the shopping list"),
    ("is the", "office window open"),
    ("cancel", "all timers"),
    ("set the bedroom temperature to", "twenty two degrees"),
    ("make the garden lights", "red"),
    ("turn the radio off", "in the bathroom"),
    ("how much time", "is left on the timer"),
    ("switch on all the lights", "in the hallway"),
    ("what is", "twenty four plus seventy one"),
    ("close the basement", "curtains"),
    ("turn on the kitchen", "coffee machine"),
)
"Sentences in two pieces; the pause comes between them."

PAUSES_MS = (300, 400, 500, 600)
"Pauses in turn, one for each sentence."

BETWEEN_MS = 600
"Silence after an answer, before the next sentence."
TIMEOUT_S = 10
"Longest wait for an answer."


@dataclass(slots=True)
class SentenceEvents:
    """Events of one sentence."""

    cuts: int = 0
    "Ends of an utterance within the sentence, including those that were taken back."
    utterances: int = 1
    "Utterances of the sentence that remained."

    def begin(self) -> None:
        self.cuts, self.utterances = 0, 1

    def change(self, log: TurnLog) -> None:
        self.cuts = max(self.cuts, len(log.transcripts) - 1)
        self.utterances = max(1, len(log.transcripts))


@dataclass(frozen=True, slots=True)
class PauseResult:
    """Result of one sentence."""

    words: tuple[str, str]
    pause_ms: int
    cuts: int
    utterances: int
    report: TurnReport

    @property
    def errors(self) -> int:
        return _errors(self.words, self.report)


def _errors(words: tuple[str, str], report: TurnReport) -> int:
    return word_errors(spoken_words(" ".join(words)), spoken_words(report.transcript))


def _missing(result: PauseResult) -> int:
    spoken_count = len(spoken_words(" ".join(result.words)))
    return max(0, spoken_count - len(spoken_words(result.report.transcript)))


def with_pause(words: tuple[str, str], pause_ms: float) -> Pcm:
    """Returns the sentence at 24 kHz. The pause is exact: silence around the spoken pieces is cut
    off."""
    first, second = (_trimmed(synthesise(piece)) for piece in words)
    quiet = silence(BETWEEN_MS, RATE_HZ)
    return np.concatenate([quiet, first, silence(pause_ms, RATE_HZ), second])


def _trimmed(pcm: Pcm) -> Pcm:
    begin, end = speech_span(pcm, RATE_HZ) or (0, len(pcm))
    return pcm[begin:end]


async def measure(
    conversation: ConversationClient, events: SentenceEvents
) -> AsyncIterator[tuple[PauseResult, int]]:
    """Yields each sentence's result, and its number of word errors caused by the pause alone."""
    for number, words in enumerate(SENTENCES):
        pause_ms = PAUSES_MS[number % len(PAUSES_MS)]
        events.begin()
        report = await conversation.say(with_pause(words, pause_ms))
        result = PauseResult(words, pause_ms, events.cuts, events.utterances, report)
        lost = 0
        if result.errors:
            whole = await conversation.say(synthesise(" ".join(words)))
            lost = max(0, result.errors - _errors(words, whole))
        yield result, lost


async def run(args: argparse.Namespace) -> int:
    """Runs the measurement and prints it; returns the exit code."""
    events, results = SentenceEvents(), list[tuple[PauseResult, int]]()
    async with (
        named_or_own_server(args.url, args.key) as address,
        open_conversation(
            address,
            args.transport,
            SessionRequest(language="en", turn_detection=args.detection),
            timeout_s=TIMEOUT_S,
            on_change=events.change,
        ) as (conversation, _),
    ):
        async for result, lost in measure(conversation, events):
            results.append((result, lost))
            row = (" | ".join(result.words), result.pause_ms, result.cuts, result.utterances, lost)
            print("\t".join(map(str, (*row, result.report.transcript, result.report.reply))))
    for name, value in summary_rows(results):
        print(f"| {name} | {value} |")
    return 1 if any(_missing(result) for result, _ in results) else 0


def summary_rows(results: Sequence[tuple[PauseResult, int]]) -> Iterator[tuple[str, int]]:
    """Yields the rows of the summary: name and value."""
    yield "sentences with a pause of 300 to 600 ms", len(results)
    yield "words misheard by the pause alone", sum(lost for _, lost in results)
    missing = (_missing(result) for result, _ in results)
    yield "words fewer than spoken", sum(missing)
    yield "cut at the pause", sum(result.cuts > 0 for result, _ in results)
    yield "cut, and left in several utterances", sum(result.utterances > 1 for result, _ in results)
    yield "word errors, the recogniser's own included", sum(result.errors for result, _ in results)
    answered = sum(result.report.status == "answered" for result, _ in results)
    yield "answered", answered


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0 if no word was lost, 1 if some were, 5 after an error."""
    parser = argparse.ArgumentParser(prog="python -m bench.measurements.pauses")
    parser.add_argument("--url", help="address of a server; default: one is started for the run")
    parser.add_argument("--key")
    parser.add_argument("--transport", choices=("webrtc", "ws"), default="ws")
    parser.add_argument(
        "--detection",
        choices=("semantic_vad", "server_vad"),
        default="semantic_vad",
        help=(
            "how the end of a turn is detected; server_vad waits as long as the server's settings"
            " say"
        ),
    )
    try:
        return asyncio.run(run(parser.parse_args(argv)))
    except EarshotError as error:
        print(f"bench.measurements.pauses: {error}", file=sys.stderr)
        return 5


if __name__ == "__main__":
    sys.exit(main())
