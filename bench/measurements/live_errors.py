r"""Compares the word errors of live speech with those of the same weights on the whole file.

    python -m bench.measurements.live_errors --data ../shared/data --option model=FOLDER
    python -m bench.measurements.live_errors --asr pocketsphinx --corpus commands \
        --silences 0 --doors whole,upload
    python -m bench.measurements.live_errors --option model=FOLDER --silences 0 \
        --doors whole,answered --sounds recorded,hoarse,soft,far,whispered --no-speech normal

Each recording is sent after several lengths of silence through a session in virtual time, with
each kind of turn detection, and as an upload and as live audio of a device (Wyoming, Willow). Only
the network is missing. Unless `--no-speech` says otherwise, the no-speech filter is off, so what
differs is where audio is cut, what is put around it, and how the results are joined. Partials are
not decoded.

Each cell has the word errors in %, and in brackets the number of words that differ from those of
the whole file, and how many of these are missing. Of recordings with labels (real-commands) the
text of the whole file is the reference.
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
from bench.tools.changed_voices import SOUNDS
from bench.tools.virtual_time import run_virtual
from bench.tools.word_errors import NOTHING, aligned, spoken_words
from core.audio import ASR_RATE_HZ, PTIME_MS, Pcm, ms_to_samples, silence
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
from pipeline.transcription.no_speech import NoSpeechMode
from pipeline.transcription.recording import Transcriber
from pipeline.transcription.stitching import join_texts
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
        await asyncio.sleep(DECODE_S)
        return self.result(item)

    def result(self, item: AsrItem) -> AsrResult:
        """Returns the result at once."""
        key = item.pcm.tobytes(), item.options
        if key not in self._known:
            self._known[key] = self.model.decode([item])[0]
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
    whole: str
    "Words that the recogniser alone finds in the whole file, without a filter."
    text: str

    @property
    def pairs(self) -> list[Pair]:
        return aligned(spoken_words(self.reference or self.whole), spoken_words(self.text))

    @property
    def errors(self) -> int:
        return sum(one != other for one, other in self.pairs)

    @property
    def differences(self) -> list[Pair]:
        """Words that differ from those of the whole file."""
        pairs = aligned(spoken_words(self.whole), spoken_words(self.text))
        return [(one, other) for one, other in pairs if one != other]


def cell(found: Sequence[HeardClip]) -> str:
    """Returns the cell of the table for one door: errors, differences, words that are missing."""
    words = sum(len(one.pairs) - sum(a == NOTHING for a, _ in one.pairs) for one in found)
    differences = [pair for one in found for pair in one.differences]
    missing = sum(other == NOTHING for _, other in differences)
    rate = 100 * sum(one.errors for one in found) / max(1, words)
    return f"{rate:.1f} ({len(differences)}, {missing})"


def hear(
    recogniser: UnhurriedRecogniser,
    vad: VadEngine,
    door: Door,
    pcm: Pcm,
    no_speech: NoSpeechMode = "off",
) -> str:
    """Returns what is understood of a recording at a door. `no_speech`: see `asr.no_speech`; the
    recogniser alone is never filtered."""
    engines = EngineSet(
        vad,
        {DEFAULT: recogniser},
        {DEFAULT: llm.create(llm.Settings(delay_ms=100))},
        {DEFAULT: tts.create(tts.Settings(delay_ms=100))},
        no_speech=no_speech,
    )
    match door:
        case "whole":
            return _alone(recogniser, pcm)
        case "upload" | "device":
            return _recorded(engines, pcm, is_live=door == "device")
        case "opus":
            return _session(engines, through_opus(pcm), _settings("semantic_vad"))
        case _:
            return _session(engines, pcm, _settings(door))


def _alone(recogniser: UnhurriedRecogniser, pcm: Pcm) -> str:
    """Returns the text of the recogniser alone, in windows if it takes no longer audio."""
    window_ms = recogniser.info.window_ms
    size = ms_to_samples(window_ms, ASR_RATE_HZ) if window_ms else max(1, len(pcm))
    options = AsrOptions(no_speech_threshold=1.0)
    items = [
        AsrItem("whole", pcm[at : at + size], True, options) for at in range(0, len(pcm), size)
    ]
    return join_texts(recogniser.result(item).text for item in items)


def _settings(door: Door) -> SessionSettings:
    kind: Any = "server_vad" if door == "server_vad" else "semantic_vad"
    answers = door == "answered"
    detection = TurnDetection(kind=kind, create_response=answers)
    return SessionSettings(answers=True, turn_detection=detection)


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
    """Yields name, text and audio of each recording of a corpus; the text is empty if the corpus
    has only labels."""
    folder = data / name
    labels = folder / "labels.tsv"
    if labels.exists():
        names = [line.split("\t")[0] for line in labels.read_text("utf-8").splitlines()[1:]]
        texts = [(folder / one, "") for one in names]
    else:
        texts = transcripts(folder)
    for path, reference in texts:
        if name == "speech" and path.parent.name != "en":
            continue
        pcm = decode_file(path)
        if len(pcm) <= longest_s * ASR_RATE_HZ:
            yield path.name, reference, pcm


def measure(args: argparse.Namespace) -> None:
    """Prints the word errors of each door by the silence before the recordings."""
    options = dict(option.split("=", 1) for option in args.option)
    recogniser = UnhurriedRecogniser(load("asr", args.asr, options))
    vad: VadEngine = load("vad", "gated", {})
    recordings = corpus(args.data, args.corpus, args.longest_s)
    clips = [one for one in recordings if one[0].startswith(tuple(args.names.split(",")))][
        :: args.every
    ]
    silences = [int(one) for one in args.silences.split(",")]
    print(f"{len(clips)} recordings; by silence before, in ms: word errors in % (words other than")
    print("those of the whole file, of these missing)\n")
    print("| sound | door | " + " | ".join(map(str, silences)) + " |", flush=True)
    print("|---|---|" + "---|" * len(silences))
    for sound in args.sounds.split(","):
        for door in args.doors.split(","):
            cells = []
            for before_ms in silences:
                quiet = silence(before_ms, ASR_RATE_HZ)
                found = []
                for name, reference, pcm in clips:
                    changed = np.append(quiet, SOUNDS[sound](pcm))
                    whole = hear(recogniser, vad, "whole", changed)
                    text = hear(recogniser, vad, door, changed, args.no_speech)
                    found.append(HeardClip(name, reference, whole, text))
                cells.append(cell(found))
                if args.each:
                    _print_each(door, before_ms, found)
            print(f"| {sound} | {door} | {' | '.join(cells)} |", flush=True)


def _print_each(door: Door, before_ms: int, found: Sequence[HeardClip]) -> None:
    for one in found:
        wrong = " ".join(f"{a}>{b}" for a, b in one.differences)
        print(f"{door}\t{before_ms}\t{one.name}\t{one.errors}\t{wrong}\t{one.text}", flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 5 after an error."""
    parser = argparse.ArgumentParser(prog="python -m bench.measurements.live_errors")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--corpus", default="speech", help="folder in the data: speech, commands, real-commands"
    )
    parser.add_argument("--asr", default="faster_whisper", help="recogniser")
    parser.add_argument("--option", action="append", default=[], help="option of the recogniser")
    parser.add_argument("--doors", default=",".join(get_args(Door)))
    parser.add_argument("--silences", default=",".join(map(str, SILENCES_MS)), help="in ms")
    parser.add_argument("--sounds", default="recorded", help=f"changes: {', '.join(SOUNDS)}")
    parser.add_argument("--no-speech", choices=get_args(NoSpeechMode), default="off")
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
