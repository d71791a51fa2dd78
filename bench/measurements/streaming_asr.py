"""Measures how long after they can be known the words of a streaming recogniser come.

    python -m bench.measurements.streaming_asr MODEL_FOLDER RECORDING... [--sessions 1 20]

Each session speaks the recordings in real time, with a silence after each, as a microphone does.
One worker process and the server's scheduler serve all of them. Printed are, in ms:

- new words: from the arrival of the audio that completes the step in which they are found, to their
  report. This is the queue and the time of computing; the look-ahead of the model is not in it.
- final result: from the end of the silence to the result, which includes the computing of the
  silence that is appended.

The last line compares the 95th percentiles with those of the first number of sessions.
"""

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.server.stub_engines.scheduled_asr import (
    AsrScheduler,
    NullMetrics,
    RunningLoopClock,
    run_scheduler,
)
from bench.tools.stats import machine, markdown, percentile
from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, samples_to_ms
from core.errors import EarshotError
from engines.base import AsrInfo, AsrItem, AsrOptions, AsrResult
from media.files.decode import decode_file
from pipeline.transcription.partials import PartialHypothesis
from pipeline.transcription.stream import TranscriptStream
from serving.asr.scheduling import DecodePriority
from serving.workers.process import ProcessWorker

FRAME_MS = 20
"Audio that arrives at once."
SILENCE_MS = 600
"Silence after a recording: about the wait for the end of a turn."
ENGINE = "sherpa"


@dataclass(slots=True)
class StreamingResult:
    """Measured values of all sessions, in ms."""

    words_ms: list[float] = field(default_factory=list)
    finals_ms: list[float] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ScheduledRecogniser:
    """A `Recogniser` on a scheduler."""

    info: AsrInfo
    scheduler: AsrScheduler

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        return await self.scheduler.submit(item, priority)

    def forget(self, utterance: str) -> None:
        self.scheduler.forget(utterance)

    def hold(self) -> AbstractContextManager[None]:
        return nullcontext()

    def admit(self, priority: DecodePriority) -> None:
        self.scheduler.admit(priority)

    def promote(self, utterance: str) -> None:
        self.scheduler.promote(utterance)


async def measure(
    model: Path, clips: Sequence[Pcm], sessions: int, turns: int, options: dict[str, object]
) -> StreamingResult:
    """Runs sessions that speak `turns` recordings together. `options`: further settings of the
    engine."""
    worker = ProcessWorker("asr", ENGINE, {"model": str(model), **options}, NullMetrics())
    result = StreamingResult()
    async with run_scheduler([worker]) as scheduler:
        recogniser = ScheduledRecogniser(await worker.ready(), scheduler)
        # One turn that is not measured: the first call of a library takes longer.
        await _Speaker(recogniser, StreamingResult()).speak(clips[0], "warm")
        async with asyncio.TaskGroup() as tasks:
            for number in range(sessions):
                own_turns = range(number, turns, sessions)
                tasks.create_task(_session(recogniser, clips, own_turns, sessions, result))
    return result


async def _session(
    recogniser: ScheduledRecogniser,
    clips: Sequence[Pcm],
    turns: range,
    sessions: int,
    result: StreamingResult,
) -> None:
    """Speaks the recordings with the numbers `turns`. Begins at a moment of its own, so that the
    steps of the sessions are spread evenly."""
    steps = recogniser.info.steps
    await asyncio.sleep((steps.every_ms if steps else 200) / 1000 * turns.start / sessions)
    for turn in turns:
        await _Speaker(recogniser, result).speak(clips[turn % len(clips)], f"item_{turn}")


class _Speaker:
    """Speaks one recording, and notes when its words come."""

    def __init__(self, recogniser: ScheduledRecogniser, result: StreamingResult) -> None:
        self._recogniser, self._result = recogniser, result
        self._arrivals: list[float] = []
        "Loop time at which each frame arrived."
        self._words = ""

    async def speak(self, clip: Pcm, name: str) -> None:
        """Sends the recording and the silence, and waits for the result."""
        loop = asyncio.get_running_loop()
        silence = np.zeros(ms_to_samples(SILENCE_MS, ASR_RATE_HZ), np.int16)
        options = AsrOptions()
        async with asyncio.TaskGroup() as tasks:
            stream = TranscriptStream(self._recogniser, name, options, RunningLoopClock(), tasks)
            stream.follow(self._take_words, self._take_error)
            began_s = loop.time()
            for number, frame in enumerate(_frames(np.concatenate([clip, silence])), start=1):
                await asyncio.sleep(began_s + number * FRAME_MS / 1000 - loop.time())
                self._arrivals.append(loop.time())
                stream.push(frame)
            ended_s = loop.time()
            try:
                self._result.texts.append((await stream.finish()).text)
            except EarshotError as error:
                self._take_error(error)
            self._result.finals_ms.append(1000 * (loop.time() - ended_s))
            stream.discard()

    def _take_words(self, hypothesis: PartialHypothesis, audio_ms: int) -> None:
        words = f"{hypothesis.stable} {hypothesis.unstable}".strip()
        if words == self._words:
            return
        self._words = words
        now_s = asyncio.get_running_loop().time()
        steps = self._recogniser.info.steps
        decoded_ms = steps.decoded_ms(audio_ms) if steps else audio_ms
        completing_frame = max(0, -int(-decoded_ms // FRAME_MS) - 1)
        self._result.words_ms.append(1000 * (now_s - self._arrivals[completing_frame]))

    def _take_error(self, error: EarshotError) -> None:
        self._result.errors.append(str(error))


def _frames(pcm: Pcm) -> Iterator[Pcm]:
    size = ms_to_samples(FRAME_MS, ASR_RATE_HZ)
    return (pcm[start : start + size] for start in range(0, len(pcm), size))


def table(results: dict[int, StreamingResult]) -> str:
    """Returns Markdown with a row for each number of sessions and each kind of result."""
    rows, ratios = [], []
    baseline = next(iter(results.values()))
    for sessions, result in results.items():
        kinds = {
            "new words": (result.words_ms, baseline.words_ms),
            "final result": (result.finals_ms, baseline.finals_ms),
        }
        for kind, (values, first) in kinds.items():
            percents = [f"{percentile(values, percent):.1f}" for percent in (50, 95)]
            rows.append([str(sessions), kind, *percents, f"{max(values):.1f}", str(len(values))])
            ratio = percentile(values, 95) / percentile(first, 95)
            ratios.append(f"{kind} of {sessions}: {ratio:.2f}")
    errors = sum(len(result.errors) for result in results.values())
    return (
        markdown(["sessions", "ms", "p50", "p95", "most", "n"], rows)
        + f"\n\n{errors} errors; p95 relative to the first row: {', '.join(ratios)}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path, metavar="MODEL_FOLDER")
    parser.add_argument("recordings", type=Path, nargs="+", metavar="RECORDING")
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 20], metavar="N")
    parser.add_argument("--turns", type=int, default=60, help="recordings of all sessions (60)")
    parser.add_argument("--threads", type=int, default=1, help="threads of the worker (1)")
    parser.add_argument("--show", action="store_true", help="print the recognised texts")
    options = parser.parse_args()
    clips = [decode_file(path) for path in options.recordings]
    seconds = sum(samples_to_ms(len(clip), ASR_RATE_HZ) for clip in clips) / 1000
    print(f"{machine()}; {options.model.name}; {len(clips)} recordings, {seconds:.1f} s\n")
    settings: dict[str, object] = {"threads": options.threads}
    results = {
        sessions: asyncio.run(measure(options.model, clips, sessions, options.turns, settings))
        for sessions in options.sessions
    }
    print(table(results))
    if options.show:
        for text in dict.fromkeys(text for one in results.values() for text in one.texts):
            print(text)


if __name__ == "__main__":
    main()
