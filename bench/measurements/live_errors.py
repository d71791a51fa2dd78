r"""Compares the word errors of live speech with those of the same weights on the whole file.

    python -m bench.measurements.live_errors --data ../shared/data --option model=FOLDER --every 3
    python -m bench.measurements.live_errors --asr pocketsphinx --corpus commands \
        --silences 0 --doors upload,wyoming
    python -m bench.measurements.live_errors --option model=FOLDER --silences 0 \
        --doors realtime/semantic_vad --sounds recorded,hoarse,soft,far,whispered

Each recording is sent after several lengths of silence to each door, in virtual time: as PCM of
24 kHz over the Realtime API's WebSocket, as Opus of a WebRTC call and of a xiaozhi board, each with
both kinds of turn detection; as samples of a Wyoming satellite and of a Willow board; and as an
upload. Only the network is missing. Partials are not decoded.

There is one row per door and length of silence, and in it one cell for each mode of the no-speech
filter (`off`, and `normal` as in a server). A cell has the word errors in % and their distance to
those of the whole file in points; in brackets the words that differ from those of the whole file,
and how many of these are missing; then the utterances without words and the words that were
rejected as noise. Of recordings with labels (real-commands) the text of the whole file is the
reference. `--cache` keeps each decode by its audio, for runs with the same engine's code.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import numpy as np

from bench.measurements.accuracy import transcripts
from bench.measurements.material.changed_voices import VOICE_CHANGES
from bench.measurements.material.live_doors import (
    DOORS,
    RecognisedSpeech,
    transcribe_at_door,
    transcribe_without_door,
)
from bench.measurements.material.remembered_results import RememberedResults, RememberingRecogniser
from bench.tools.word_errors import NOTHING, Pair, align_words, spoken_words, word_errors
from core.audio import ASR_RATE_HZ, Pcm, silence
from core.errors import EarshotError
from engines.base import VadEngine
from engines.registry import load
from media.files.decode import decode_file
from pipeline.transcription.no_speech import NoSpeechMode

SILENCES_MS = (0, 5, 100, 300, 500, 1000)
"Silence before the recording: the frames of the VAD then begin at different samples of a word."
DECODE_S = 0.27
"Time of a decode: as tiny.en takes on one core."


@dataclass(frozen=True, slots=True)
class RecognisedClip:
    """One recording, as it was understood at one door."""

    name: str
    reference: str
    "Empty: the recording has no transcript."
    whole: str
    "Words that the recogniser alone finds in the whole file, without a filter."
    heard: RecognisedSpeech

    @property
    def spoken(self) -> list[str]:
        """Words to find."""
        return spoken_words(self.reference or self.whole)

    @property
    def errors(self) -> int:
        return word_errors(self.spoken, spoken_words(self.heard.text))

    @property
    def errors_of_whole(self) -> int:
        return word_errors(self.spoken, spoken_words(self.whole))

    @property
    def differences(self) -> list[Pair]:
        """Words that differ from those of the whole file."""
        pairs = align_words(spoken_words(self.whole), spoken_words(self.heard.text))
        return [(word, other) for word, other in pairs if word != other]


def cell(found: Sequence[RecognisedClip]) -> str:
    """Returns the cell of the table for one door: errors and their distance to those of the whole
    file; words that differ, and that are missing; empty utterances, and rejected words."""
    words = max(1, sum(len(clip.spoken) for clip in found))
    differences = [pair for clip in found for pair in clip.differences]
    missing = sum(other == NOTHING for _, other in differences)
    rate = 100 * sum(clip.errors for clip in found) / words
    distance = rate - 100 * sum(clip.errors_of_whole for clip in found) / words
    empty = sum(clip.heard.empty_utterances for clip in found)
    rejected = sum(clip.heard.rejected_words for clip in found)
    return f"{rate:.1f} {distance:+.1f} ({len(differences)}, {missing}) {empty}, {rejected}"


def corpus(data: Path, name: str, longest_s: float) -> Iterator[tuple[str, str, Pcm]]:
    """Yields name, text and audio of each recording of a corpus; the text is empty if the corpus
    has only labels."""
    folder = data / name
    labels = folder / "labels.tsv"
    if labels.exists():
        names = [line.split("\t")[0] for line in labels.read_text("utf-8").splitlines()[1:]]
        texts = [(folder / file_name, "") for file_name in names]
    else:
        texts = transcripts(folder)
    for path, reference in texts:
        if name == "speech" and path.parent.name != "en":
            continue
        pcm = decode_file(path)
        if len(pcm) <= longest_s * ASR_RATE_HZ:
            yield path.name, reference, pcm


def measure(args: argparse.Namespace) -> None:
    """Prints the cells of each door by the silence before the recordings, as they are known."""
    options = dict(option.split("=", 1) for option in args.option)
    results = RememberedResults.read(args.cache)
    recogniser = RememberingRecogniser(load("asr", args.asr, options), results, DECODE_S)
    vad: VadEngine = load("vad", "gated", {})
    recordings = corpus(args.data, args.corpus, args.longest_s)
    clips = [
        recording
        for recording in recordings
        if recording[0].startswith(tuple(args.names.split(",")))
    ][:: args.every]
    print(f"{len(clips)} recordings. Each cell: word errors in %, points above the whole file")
    print("(words other than those of the whole file, of these missing), empty utterances,")
    print("rejected words\n")
    print(f"| sound | door | silence, ms | {' | '.join(args.no_speech)} |")
    print("|---|---|---|" + "---|" * len(args.no_speech), flush=True)
    for sound in args.sounds:
        for before_ms in args.silences:
            quiet = silence(before_ms, ASR_RATE_HZ)
            changed = [np.append(quiet, VOICE_CHANGES[sound](pcm)) for _, _, pcm in clips]
            whole = [transcribe_without_door(recogniser, pcm) for pcm in changed]
            for door in args.doors:
                cells = []
                for mode in args.no_speech:
                    heard = [
                        transcribe_at_door(recogniser, vad, door, pcm, mode) for pcm in changed
                    ]
                    found = [
                        RecognisedClip(name, reference, text, speech)
                        for (name, reference, _), text, speech in zip(
                            clips, whole, heard, strict=True
                        )
                    ]
                    cells.append(cell(found))
                    if args.each:
                        _print_each(f"{sound} {door} {mode}", before_ms, found)
                results.write(args.cache)
                print(f"| {sound} | {door} | {before_ms} | {' | '.join(cells)} |", flush=True)


def _print_each(door: str, before_ms: int, found: Sequence[RecognisedClip]) -> None:
    for clip in found:
        wrong = " ".join(f"{a}>{b}" for a, b in clip.differences)
        more = clip.errors - clip.errors_of_whole
        print(
            f"{door}\t{before_ms}\t{clip.name}\t{more:+d}\t{wrong}\t{clip.heard.text}", flush=True
        )


def _list_of(*allowed: str) -> Callable[[str], list[str]]:
    """Returns a parser of an option: names with commas between them."""

    def parse(value: str) -> list[str]:
        names = value.split(",")
        for name in names:
            if name not in allowed:
                raise argparse.ArgumentTypeError(f"'{name}' is none of {', '.join(allowed)}")
        return names

    return parse


def _milliseconds(value: str) -> list[int]:
    return [int(number) for number in value.split(",")]


def main(argv: Sequence[str] | None = None) -> int:
    """Returns 0, or 5 after an error."""
    parser = argparse.ArgumentParser(prog="python -m bench.measurements.live_errors")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument(
        "--corpus", default="speech", help="folder in the data: speech, commands, real-commands"
    )
    parser.add_argument("--asr", default="faster_whisper", help="recogniser")
    parser.add_argument("--option", action="append", default=[], help="option of the recogniser")
    parser.add_argument(
        "--doors", type=_list_of(*DOORS), default=list(DOORS), help=", ".join(DOORS)
    )
    parser.add_argument(
        "--silences", type=_milliseconds, default=list(SILENCES_MS), help="before it, in ms"
    )
    parser.add_argument(
        "--sounds",
        type=_list_of(*VOICE_CHANGES),
        default=["recorded"],
        help=", ".join(VOICE_CHANGES),
    )
    parser.add_argument(
        "--no-speech",
        type=_list_of(*get_args(NoSpeechMode)),
        default=["off", "normal"],
        help="modes of the no-speech filter",
    )
    parser.add_argument("--longest-s", type=float, default=60, help="leaves longer recordings out")
    parser.add_argument("--names", default="", help="takes recordings with these first letters")
    parser.add_argument("--every", type=int, default=1, help="takes each nth recording")
    parser.add_argument("--each", action="store_true", help="prints each recording")
    parser.add_argument("--cache", type=Path, help="file that keeps decodes for the next run")
    try:
        measure(parser.parse_args(argv))
    except (EarshotError, OSError, ValueError) as error:
        print(f"bench.measurements.live_errors: {error}", file=sys.stderr)
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main())
