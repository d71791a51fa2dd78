"""Measures the event loop's lag while a voice speaks, and how soon its first sound comes.

    python -m bench.measurements.voice_lag --engine piper --option model=VOICE.onnx
    python -m bench.measurements.voice_lag --engine piper --option model=VOICE.onnx --in-gateway

The voice runs in a worker process as in the server; `--in-gateway` runs it in threads of the
measuring process, for comparison. The speakers ask without a pause, each for one sentence after the
other. Every fourth sentence is left after its first sound, as by a barge-in.
"""

import argparse
import asyncio
import gc
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from bench.measurements.loop_lag import IDLE_S, probe_loop
from bench.server.stub_engines.scheduled_asr import NullMetrics
from bench.tools.stats import machine, markdown, percentile
from core.errors import ConfigError
from engines.base import Tts, TtsInfo
from engines.registry import load, worker_profile
from serving.workers.engine_process import engine_process
from serving.workers.process_tts import ProcessTts

SENTENCES = (
    "The light in the kitchen is on, and the door to the garden is still open.",
    "It is eleven degrees outside. Tomorrow it will rain from noon until the evening.",
    "Your timer for the eggs is over. Shall I start another one for the potatoes?",
)
LEFT_EVERY = 4
"One sentence of so many is left after its first sound."
TARGET_MS = 10
"Target for the 99th percentile of the lag."


@dataclass(slots=True)
class VoiceLagResult:
    """Measured values, in milliseconds."""

    idle_lags_ms: list[float] = field(default_factory=list)
    "Lags before the voice speaks, caused by other work on this machine."
    lags_ms: list[float] = field(default_factory=list)
    own_ms: list[float] = field(default_factory=list)
    "The loop's own work between two probes, which other processes did not cause."
    first_sounds_ms: list[float] = field(default_factory=list)
    sentences: int = 0
    sound_s: float = 0.0


async def measure(
    engine: str,
    options: Mapping[str, object],
    *,
    speakers: int,
    seconds: float,
    in_gateway: bool = False,
    idle_s: float = IDLE_S,
) -> VoiceLagResult:
    """Lets `speakers` sessions ask for speech at the same time. `idle_s`: time of silence before,
    in which the lag is measured, too. Raises ConfigError, EngineError."""
    found = VoiceLagResult()
    async with _voice(engine, options, in_gateway=in_gateway) as tts:
        await _speak(tts, SENTENCES[0])  # the first sentence is slower
        gc.collect()
        gc.freeze()  # as the server does after its start
        try:
            await _for(idle_s, probe_loop(found.idle_lags_ms, []))
            asking = [_ask(tts, found) for _ in range(speakers)]
            await _for(seconds, probe_loop(found.lags_ms, found.own_ms), *asking)
        finally:
            gc.unfreeze()
    return found


@asynccontextmanager
async def _voice(
    engine: str, options: Mapping[str, object], *, in_gateway: bool
) -> AsyncIterator[Tts]:
    profile = worker_profile("tts", engine, options)
    if in_gateway or profile is None:
        yield load("tts", engine, options)
        return
    metrics = NullMetrics()
    process = engine_process("tts", engine, options, TtsInfo, metrics, profile)
    async with process.running():
        yield ProcessTts(process, await process.ready(), metrics)


async def _for(seconds: float, *work: Any) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds), asyncio.TaskGroup() as tasks:
            for coroutine in work:
                tasks.create_task(coroutine)


async def _ask(tts: Tts, found: VoiceLagResult) -> None:
    loop = asyncio.get_running_loop()
    for number in range(1, 1_000_000):
        began_s, is_first = loop.time(), True
        async with aclosing(_frames(tts, SENTENCES[number % len(SENTENCES)])) as sounds:
            async for sound_s in sounds:
                if is_first:
                    found.first_sounds_ms.append((loop.time() - began_s) * 1000)
                is_first = False
                found.sound_s += sound_s
                if number % LEFT_EVERY == 0:
                    break
        found.sentences += 1


async def _speak(tts: Tts, text: str) -> None:
    async with aclosing(_frames(tts, text)) as sounds:
        async for _ in sounds:
            continue


async def _frames(tts: Tts, text: str) -> AsyncGenerator[float, None]:
    """Yields the length of each frame of the speech, in s."""
    speech = tts.speak(_only(text), language=next(iter(tts.info.voices)), on_word=lambda _: None)
    async with aclosing(speech) as frames:
        async for frame in frames:
            yield len(frame.pcm) / frame.rate_hz


async def _only(text: str) -> AsyncIterator[str]:
    yield text


def table(found: VoiceLagResult) -> str:
    """Returns Markdown: the lags, and the work that was done meanwhile."""

    def row(name: str, values: Sequence[float]) -> list[str]:
        percents = [f"{percentile(values, percent):.1f}" for percent in (50, 95, 99)]
        return [name, *percents, f"{max(values):.1f}", str(len(values))]

    rows = [
        row("loop lag, silence", found.idle_lags_ms),
        row("loop lag, the voice speaks", found.lags_ms),
        row("the loop's own work in 5 ms", found.own_ms),
        row("first sound of a sentence", found.first_sounds_ms),
    ]
    return (
        markdown(["ms", "p50", "p95", "p99", "most", "n"], rows)
        + f"\n\n{found.sentences} sentences, {found.sound_s:.0f} s of sound"
        + f"\nloop lag p99: target at most {TARGET_MS}"
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measures and prints. Returns 1 if the target is missed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.measurements.voice_lag", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--engine", default="piper")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--speakers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--in-gateway", action="store_true", help="run the voice in threads here")
    args = parser.parse_args(argv)
    options = dict(_option(text) for text in args.option)
    found = asyncio.run(
        measure(
            args.engine,
            options,
            speakers=args.speakers,
            seconds=args.seconds,
            in_gateway=args.in_gateway,
        )
    )
    print(f"{machine()}\n\n{table(found)}")
    return 0 if percentile(found.lags_ms, 99) <= TARGET_MS else 1


def _option(text: str) -> tuple[str, Any]:
    name, has_value, value = text.partition("=")
    if not has_value:
        raise ConfigError(f"--option {text!r}: write NAME=VALUE")
    return name, int(value) if value.isdecimal() else value


if __name__ == "__main__":
    raise SystemExit(main())
