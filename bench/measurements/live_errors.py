r"""Compares the word errors of live speech with those of the same weights on the whole file.

    python -m bench.measurements.live_errors --data ../shared/data --option model=FOLDER
    python -m bench.measurements.live_errors --asr pocketsphinx --corpus commands \
        --silences 0 --doors whole,upload

Each recording is sent after several lengths of silence through a session in virtual time, with each
kind of turn detection, and as an upload and as live audio of a device (Wyoming, Willow). Only the
network is missing. The no-speech filter is off, so what differs is where audio is cut, what is put
around it, and how the results are joined. Partials are not decoded.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from bench.measurements.accuracy import through_opus, transcripts
from bench.server.stub_engines import llm, tts
from bench.server.stub_engines.scheduled_asr import NullMetrics, RunningLoopClock
from bench.tools.utterances import decode_whole
from bench.tools.virtual_time import run_virtual
from bench.tools.word_errors import aligned, spoken_words
from core.audio import ASR_RATE_HZ, PTIME_MS, Pcm, silence
from core.errors import EarshotError, OverloadedError
from core.items import MessageItem
from engines.base import AsrItem, AsrModel, AsrOptions, AsrResult, VadEngine
from engines.registry import load
from media.files.decode import decode_file
from media.pcm import Framer
from pipeline.conversation.conversation import Conversations
from pipeline.services import EngineSet, SessionServices
from pipeline.session.session import Session
from pipeline.session.sessions import Sessions
from pipeline.shared.settings import DEFAULT, SessionSettings, TurnDetection
from pipeline.tools.toolbox import Toolbox
from pipeline.transcription.recording import Transcriber
from serving.asr.scheduling import DecodePriority

SILENCES_MS = (0, 5, 100, 300, 500, 1000)
"Silence before the recording: the frames of the VAD then begin at different samples of a word."
AFTER_MS = 2500
"Silence after the recording: every turn is over then."
DECODE_S = 0.27
"Time of a decode: as tiny.en takes on one core."

Door = Literal["whole", "upload", "device", "server_vad", "semantic_vad", "answered", "opus"]
"""whole: the recogniser alone. upload: a file. device: audio as it is spoken, as over Wyoming or to
Willow. server_vad, semantic_vad: a session that transcribes. answered: a session that also answers,
as the page has it. opus: as semantic_vad, through the codec of calls."""

Pair = tuple[str, str]


class UnhurriedRecogniser:
    """`Recogniser` in this process that refuses partials. It decodes the same audio only once."""

    def __init__(self, model: AsrModel) -> None:
        self.info = model.info
        self.model = model
        self._known: dict[tuple[bytes, AsrOptions], AsrResult] = {}

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        if priority is DecodePriority.PARTIAL:
            raise OverloadedError("partials are not decoded", code="overloaded", retry_after_s=1)
        key = item.pcm.tobytes(), item.options
        if key not in self._known:
            self._known[key] = self.model.decode([item])[0]
        await asyncio.sleep(DECODE_S)
        return self._known[key]

    def forget(self, utterance: str) -> None:
        self.model.forget(utterance)

    def hold(self) -> AbstractContextManager[None]:
        return nullcontext()

    def admit(self, priority: DecodePriority) -> None: ...

    def promote(self, utterance: str) -> None: ...


@dataclass(frozen=True, slots=True)
class HeardClip:
    """One recording, as it was understood at one door."""

    name: str
    reference: str
    text: str

    @property
    def pairs(self) -> list[Pair]:
        return aligned(spoken_words(self.reference), spoken_words(self.text))

    @property
    def errors(self) -> int:
        return sum(one != other for one, other in self.pairs)


def hear(recogniser: UnhurriedRecogniser, vad: VadEngine, door: Door, pcm: Pcm) -> str:
    """Returns what is understood of a recording at a door."""
    engines = EngineSet(
        vad,
        {DEFAULT: recogniser},
        {DEFAULT: llm.create(llm.Settings(delay_ms=100))},
        {DEFAULT: tts.create(tts.Settings(delay_ms=100))},
        no_speech="off",
    )
    match door:
        case "whole":
            return decode_whole(recogniser.model, "whole", pcm).text
        case "upload" | "device":
            return _recorded(engines, pcm, is_live=door == "device")
        case "opus":
            return _session(engines, through_opus(pcm), _settings("semantic_vad"))
        case _:
            return _session(engines, pcm, _settings(door))


def _settings(door: Door) -> SessionSettings:
    kind: Any = "server_vad" if door == "server_vad" else "semantic_vad"
    answers = door == "answered"
    detection = TurnDetection(kind=kind, create_response=answers)
    return SessionSettings(answers=True, turn_detection=detection, no_speech_threshold=1.0)


def _recorded(engines: EngineSet, pcm: Pcm, *, is_live: bool) -> str:
    texts: list[str] = []

    async def main() -> None:
        transcriber = Transcriber(engines)
        opened = transcriber.open(DEFAULT, AsrOptions(), eager=is_live)
        async with opened as recording:
            for frame in Framer(ASR_RATE_HZ).push(pcm):
                await recording.push(frame.pcm)
                await asyncio.sleep(PTIME_MS / 1000 if is_live else 0)
            recording.end()
            texts.append((await recording.transcript()).text)

    run_virtual(main())
    return texts[0]


def _session(engines: EngineSet, pcm: Pcm, settings: SessionSettings) -> str:
    conversations = Conversations()
    texts: list[str] = []

    async def main() -> None:
        services = SessionServices(
            engines, Toolbox([], NullMetrics()), RunningLoopClock(), NullMetrics()
        )
        async with (
            Sessions(services, conversations, 1).open(settings, paced_by="server") as session,
            asyncio.TaskGroup() as tasks,
        ):
            reading = tasks.create_task(_read(session), name="events")
            for frame in Framer(ASR_RATE_HZ).push(np.append(pcm, silence(AFTER_MS, ASR_RATE_HZ))):
                await asyncio.sleep(PTIME_MS / 1000)
                session.feed(frame)
                session.pull()
            await session.settled()
            reading.cancel()
            items = conversations.get(session.conversation_id).history.items
        messages = [item for item in items if isinstance(item, MessageItem)]
        texts.extend(item.text for item in messages if item.role == "user")

    run_virtual(main())
    return " ".join(texts)


async def _read(session: Session) -> None:
    """Reads and drops the events: unread events would end the session."""
    async for _ in session.events:
        continue


def corpus(data: Path, name: str, longest_s: float) -> Iterator[tuple[str, str, Pcm]]:
    """Yields name, text and audio of each recording of a corpus."""
    for path, reference in transcripts(data / name):
        if name == "speech" and path.parent.name != "en":
            continue
        pcm = decode_file(path)
        if len(pcm) <= longest_s * ASR_RATE_HZ:
            yield path.name, reference, pcm


def measure(args: argparse.Namespace) -> None:
    """Prints the word error rate of each door by the silence before the recordings."""
    options = dict(option.split("=", 1) for option in args.option)
    recogniser = UnhurriedRecogniser(load("asr", args.asr, options))
    vad: VadEngine = load("vad", "gated", {})
    recordings = corpus(args.data, args.corpus, args.longest_s)
    clips = [one for one in recordings if one[0].startswith(tuple(args.names.split(",")))][
        :: args.every
    ]
    words = sum(len(spoken_words(reference)) for _, reference, _ in clips)
    silences = [int(one) for one in args.silences.split(",")]
    print(f"{len(clips)} recordings, {words} words; word errors in % by silence before, in ms")
    print("| door | " + " | ".join(map(str, silences)) + " |", flush=True)
    for door in args.doors.split(","):
        rates = []
        for before_ms in silences:
            quiet = silence(before_ms, ASR_RATE_HZ)
            found = [
                HeardClip(name, reference, hear(recogniser, vad, door, np.append(quiet, pcm)))
                for name, reference, pcm in clips
            ]
            rates.append(100 * sum(one.errors for one in found) / words)
            if args.each:
                _print_each(door, before_ms, found)
        print(f"| {door} | " + " | ".join(f"{rate:.1f}" for rate in rates) + " |", flush=True)


def _print_each(door: Door, before_ms: int, found: Sequence[HeardClip]) -> None:
    for one in found:
        wrong = " ".join(f"{a}>{b}" for a, b in one.pairs if a != b)
        print(f"{door}\t{before_ms}\t{one.name}\t{one.errors}\t{wrong}\t{one.text}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 5 after an error."""
    parser = argparse.ArgumentParser(prog="python -m bench.measurements.live_errors")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--corpus", default="speech", help="folder in the data: speech, commands")
    parser.add_argument("--asr", default="faster_whisper", help="recogniser")
    parser.add_argument("--option", action="append", default=[], help="option of the recogniser")
    parser.add_argument("--doors", default=",".join(get_args(Door)))
    parser.add_argument("--silences", default=",".join(map(str, SILENCES_MS)), help="in ms")
    parser.add_argument("--longest-s", type=float, default=60, help="leaves longer recordings out")
    parser.add_argument("--names", default="", help="takes recordings with these first letters")
    parser.add_argument("--every", type=int, default=1, help="takes each nth recording")
    parser.add_argument("--each", action="store_true", help="prints each recording")
    try:
        measure(parser.parse_args(argv))
    except EarshotError as error:
        print(f"bench.measurements.live_errors: {error}", file=sys.stderr)
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main())
