"""Measures how well a recogniser understands home commands, and how well it ignores noise.

    python -m bench.measurements.accuracy --engine pocketsphinx --data ../shared/data
    python -m bench.measurements.accuracy --engine faster_whisper --option model=MODEL_FOLDER
    python -m bench.measurements.accuracy --only commands --noise-db 10 --noise-reduction near_field

Clips go through `decode` as a live session sends them: a longer piece every 250 ms, then the whole
as final. The result that counts is whether the intents model understands the same from the
hypothesis as from the reference text.
"""

import argparse
import asyncio
import csv
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import get_args

import numpy as np

from bench.measurements.material.noisy_clips import noise_adder
from bench.measurements.noise import decode_recordings, decode_whole, live, noise_rows
from bench.tools.word_errors import quantile, spoken_words, word_errors
from core.audio import ASR_RATE_HZ, Pcm
from core.ports import ToolContext, ToolSpec
from engines.base import AsrItem, AsrModel, AsrResult
from engines.llm.intents import phrases, understand
from engines.registry import load
from media.codecs.opus import OpusDecoder, OpusEncoder
from media.files.decode import decode_file
from media.processing.modes import NoiseMode
from pipeline.tools.home import Home, default_home
from pipeline.tools.skills import ClockTools, HomeTools, ListTools, Timers, TimerTools

PARTIAL_SAMPLES = ASR_RATE_HZ // 4
"Samples between two partials."
PHRASES = 20_000
"""Number of sentences about the demo home that are passed to engines that accept them, as by the
server."""


@dataclass(frozen=True, slots=True)
class DecodedClip:
    """Result for one clip."""

    name: str
    reference: str
    result: AsrResult
    audio_s: float
    compute_s: float
    final_ms: float
    "Time from the last samples to the final result."
    is_same_whole: bool
    "True if the text is the same when all audio comes at once."


@dataclass
class MonotonicClock:
    """Clock for timers, which need one; nothing here waits."""

    started: datetime = field(default_factory=lambda: datetime(2026, 1, 1, tzinfo=UTC))

    def now(self) -> float:
        return 0.0

    def wall(self) -> datetime:
        return self.started


class NullAnnouncer:
    """Announcer that announces nothing."""

    async def announce(self, conversation_id: str, text: str) -> bool:
        return False


def decode_clip(model: AsrModel, name: str, reference: str, pcm: Pcm) -> DecodedClip:
    """Decodes one clip piece by piece, and once more as a whole."""
    started = time.perf_counter()
    if model.info.is_incremental:
        for end in range(PARTIAL_SAMPLES, len(pcm), PARTIAL_SAMPLES):
            model.decode([AsrItem(name, pcm[:end], is_final=False)])
    last = time.perf_counter()
    result = decode_whole(model, name, pcm)
    done = time.perf_counter()
    return DecodedClip(
        name,
        reference,
        result,
        audio_s=len(pcm) / ASR_RATE_HZ,
        compute_s=done - started,
        final_ms=1000 * (done - last),
        is_same_whole=decode_whole(model, f"{name} whole", pcm).text == result.text,
    )


def through_opus(pcm: Pcm) -> Pcm:
    """Returns the audio after a WebRTC call: Opus at its default bit rate, encoded and decoded as
    in calls."""
    encoder, decoder = OpusEncoder(ASR_RATE_HZ), OpusDecoder(ASR_RATE_HZ)
    frame = encoder.frame_samples
    padded = np.pad(pcm, (0, -len(pcm) % frame))
    packets = [encoder.encode(padded[at : at + frame]) for at in range(0, len(padded), frame)]
    return np.concatenate([decoder.decode(packet) for packet in packets])


def commands(
    model: AsrModel, data: Path, is_opus: bool, change_audio: Callable[[Pcm], Pcm] | None = None
) -> Iterator[DecodedClip]:
    """Decodes the commands. change_audio: changes the audio of each, such as by adding noise."""
    for path, reference in transcripts(data / "commands"):
        pcm = decode_file(path)
        pcm = change_audio(pcm) if change_audio else pcm
        yield decode_clip(model, path.name, reference, through_opus(pcm) if is_opus else pcm)


def free_speech(model: AsrModel, data: Path) -> Iterator[DecodedClip]:
    """Decodes the English recordings of free speech."""
    for path, reference in transcripts(data / "speech"):
        if path.parent.name == "en":
            yield decode_clip(model, path.name, reference, decode_file(path))


def transcripts(folder: Path) -> list[tuple[Path, str]]:
    """Returns the recordings of a folder with their texts."""
    with (folder / "transcripts.tsv").open(encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return [(folder / row["path"], row["transcript"]) for row in rows]


def tool_specs() -> list[ToolSpec]:
    """Returns the tools of the demo home: the intents model understands their names."""
    home, clock = Home(default_home()), MonotonicClock()
    tools = (
        HomeTools(home),
        ListTools(home),
        TimerTools(Timers(home, clock, NullAnnouncer())),
        ClockTools(clock),
    )
    return [spec for tool in tools for spec in tool.tools(ToolContext("bench", "en"))]


def speech_rows(title: str, clips: Sequence[DecodedClip]) -> Iterator[tuple[str, str]]:
    """Yields the rows of the table: name and value."""
    references = [spoken_words(clip.reference) for clip in clips]
    hypotheses = [spoken_words(clip.result.text) for clip in clips]
    errors = sum(map(word_errors, references, hypotheses))
    exact = sum(map(list.__eq__, references, hypotheses))
    yield f"{title}: clips", f"{len(clips)}"
    yield f"{title}: WER", f"{100 * errors / sum(map(len, references)):.1f} %"
    yield f"{title}: exact", f"{exact} ({100 * exact / len(clips):.0f} %)"
    rejected = sum(not clip.result.text for clip in clips)
    yield f"{title}: rejected", f"{rejected}"
    answered = [(s, g) for s, g in zip(references, hypotheses, strict=True) if g]
    words = sum(len(s) for s, _ in answered)
    wrong = sum(word_errors(s, g) for s, g in answered)
    yield f"{title}: WER of the accepted", f"{100 * wrong / max(1, words):.1f} %"
    same = sum(clip.is_same_whole for clip in clips)
    yield f"{title}: same text piecewise and whole", f"{same}"
    audio_s = sum(clip.audio_s for clip in clips)
    yield f"{title}: RTF", f"{sum(clip.compute_s for clip in clips) / audio_s:.3f}"
    final_ms = sorted(clip.final_ms for clip in clips)
    yield (
        f"{title}: final p50 / p95",
        f"{quantile(final_ms, 0.5):.0f} / {quantile(final_ms, 0.95):.0f} ms",
    )


def understood(clips: Sequence[DecodedClip], specs: Sequence[ToolSpec]) -> list[DecodedClip]:
    """Returns the clips whose hypothesis means the same as the reference text; both may mean
    nothing."""
    return [
        clip
        for clip in clips
        if understand(clip.result.text, "en", specs) == understand(clip.reference, "en", specs)
    ]


def options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.measurements.accuracy", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--engine", default="pocketsphinx")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--opus", action="store_true", help="encode and decode the commands with Opus first"
    )
    parser.add_argument(
        "--noise-db",
        type=float,
        metavar="DB",
        help="add noise that is this many dB below the commands",
    )
    parser.add_argument(
        "--noise-reduction",
        choices=get_args(NoiseMode),
        default="off",
        help="noise reduction for the commands (%(default)s)",
    )
    parser.add_argument("--only", choices=("commands", "noise", "speech"))
    parser.add_argument("--show", action="store_true", help="print each clip with a wrong result")
    return parser.parse_args(argv)


def report(args: argparse.Namespace, model: AsrModel, specs: Sequence[ToolSpec]) -> None:
    """Runs the chosen parts and prints their tables."""
    if args.only in (None, "commands"):
        change_audio = noise_adder(args.data, args.noise_db, args.noise_reduction)
        spoken = list(commands(model, args.data, args.opus, change_audio))
        right = understood(spoken, specs)
        rows = list(speech_rows("commands", spoken))
        share = 100 * len(right) / len(spoken)
        rows.append(
            ("commands: intent and slots as from the text", f"{len(right)} ({share:.1f} %)")
        )
        table(rows)
        show(args, (clip for clip in spoken if clip not in right))
    if args.only in (None, "noise"):
        vad = load("vad", "gated", {})
        pieces = list(decode_recordings(model, vad, args.data))
        in_sessions = asyncio.run(live(model, vad, args.data))
        table(noise_rows("noise, recordings and 3 s pieces", pieces))
        table(noise_rows("noise, utterances of live sessions", in_sessions))
        for piece in (*pieces, *in_sessions) if args.show else ():
            if piece.filtered:
                print(f"  {piece.name}: {piece.filtered}")
    if args.only in (None, "speech"):
        free = list(free_speech(model, args.data))
        table(speech_rows("free speech", free))
        show(args, free)


def table(rows: Iterable[tuple[str, str]]) -> None:
    for name, value in rows:
        print(f"| {name} | {value} |", flush=True)


def show(args: argparse.Namespace, wrong: Iterable[DecodedClip]) -> None:
    for clip in wrong if args.show else ():
        print(f"  {clip.name} {clip.result.confidence:.2f}: {clip.reference} -> {clip.result.text}")


def main(argv: Sequence[str] | None = None) -> None:
    args = options(argv)
    specs = tool_specs()
    chosen: dict[str, object] = dict(option.split("=", 1) for option in args.option)
    if args.engine == "pocketsphinx":
        chosen["phrases"] = phrases("en", specs, PHRASES)
    started = time.perf_counter()
    model = load("asr", args.engine, chosen)
    table([("loaded in", f"{time.perf_counter() - started:.2f} s")])
    report(args, model, specs)
    model.close()


if __name__ == "__main__":
    main()
