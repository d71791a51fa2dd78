"""Compares short windows with windows of 30 s for one Whisper model: words and processor time.

    python -m bench.measurements.short_windows MODEL_FOLDER [--data ../shared/data] [--show]

Every recording is decoded both ways in turn, whole, with greedy search, on one thread and with the
number type of the server (int8). The processor time is that of the whole decoding with its
fall-backs. OMP_NUM_THREADS=1 keeps numpy from using more.
Sets: all English recordings of people in DATA/speech up to one window, in two sets by their length;
those in other languages, for models that know these (the language is detected);
DATA/real-commands, which has the values of slots in place of texts; DATA/commands, which are
synthesised.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import process_time

from bench.asr.error_rates import ScoredText, characters, errors_of, normalised, words
from bench.measurements.accuracy import transcripts
from core.audio import ASR_RATE_HZ, Pcm
from engines.asr.faster_whisper import FasterWhisper, Settings, create
from engines.asr.whisper.windows import MAX_ITEM_SAMPLES
from engines.base import AsrItem, AsrOptions, AsrPadding, AsrResult
from media.files.decode import decode_file

SENTENCE_S = 12.0
"Longest recording of the set of sentences; longer ones are a set of their own."

NOT_PEOPLE = ("tinygrad_longer.wav",)
"Synthesised recordings among those of people."

WITHOUT_BLANKS = ("ja", "ko", "yue", "zh")
"Languages in which characters are counted instead of words."

COMPARED: Sequence[AsrPadding] = ("max", "longest")


@dataclass(frozen=True, slots=True)
class CorpusRecording:
    """One recording, with its text or with values that its text must contain."""

    path: Path
    language: str
    text: str
    values: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class ComparedClip:
    """Both results of a recording, in the order of COMPARED."""

    clip: CorpusRecording
    results: Sequence[AsrResult]
    seconds: Sequence[float]
    "Processor time of each."


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints a row per set; returns 0."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.measurements.short_windows", description=__doc__
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", nargs="+", help="part of the name of a set")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="use every Nth recording")
    parser.add_argument("--show", action="store_true", help="print what differs, and fall-backs")
    options = parser.parse_args(arguments)
    model = create(Settings(model=str(options.model), device="cpu", cpu_threads=1))
    print(
        "| set | clips | errors: 30 s | short | processor time: 30 s | short | times less |"
        " short windows |\n|---|---|---|---|---|---|---|---|"
    )
    for name, clips in _sets(options.data, model.info.languages):
        if options.only and not any(part in name for part in options.only):
            continue
        compared = list(_compare(model, clips[:: options.every]))
        print(_row(name, compared), flush=True)
        for entry in compared if options.show else ():
            _show(entry)
    model.close()
    return 0


def _sets(data: Path, languages: Sequence[str]) -> Iterator[tuple[str, list[CorpusRecording]]]:
    spoken = [
        CorpusRecording(path, path.parent.name, text)
        for path, text in transcripts(data / "speech")
        if path.name not in NOT_PEOPLE and path.parent.name in languages
    ]
    english = [clip for clip in spoken if clip.language == "en"]
    limit = SENTENCE_S * ASR_RATE_HZ
    lengths = {clip.path: len(decode_file(clip.path)) for clip in spoken}
    yield "sentences up to 12 s", [clip for clip in english if lengths[clip.path] <= limit]
    yield (
        "longer sentences",
        [clip for clip in english if limit < lengths[clip.path] <= MAX_ITEM_SAMPLES],
    )
    others = [clip for clip in spoken if clip.language != "en"]
    if others:
        yield (
            "other languages",
            [recording for recording in others if lengths[recording.path] <= MAX_ITEM_SAMPLES],
        )
    yield "commands of people (slots)", list(_labelled(data / "real-commands"))
    yield (
        "commands, synthesised",
        [CorpusRecording(path, "en", text) for path, text in transcripts(data / "commands")],
    )


def _labelled(folder: Path) -> Iterator[CorpusRecording]:
    for line in (folder / "labels.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        name, _, slots = line.split("\t")
        yield CorpusRecording(folder / name, "en", "", tuple(json.loads(slots).values()))


def _compare(model: FasterWhisper, clips: Iterable[CorpusRecording]) -> Iterator[ComparedClip]:
    for number, clip in enumerate(clips):
        pcm = decode_file(clip.path)
        decoded = [_decode(model, clip, pcm, padding) for padding in _in_turn(number)]
        if number % 2:
            decoded.reverse()
        yield ComparedClip(clip, *zip(*decoded, strict=True))


def _in_turn(number: int) -> Sequence[AsrPadding]:
    """Returns both paddings, every second time the other one first."""
    return COMPARED[::-1] if number % 2 else COMPARED


def _decode(
    model: FasterWhisper, clip: CorpusRecording, pcm: Pcm, padding: AsrPadding
) -> tuple[AsrResult, float]:
    language = "en" if clip.language == "en" else None
    began = process_time()
    item = AsrItem(clip.path.name, pcm, True, AsrOptions(language, padding=padding))
    (result,) = model.decode([item])
    return result, process_time() - began


def _row(name: str, compared: Sequence[ComparedClip]) -> str:
    seconds = [sum(entry.seconds[way] for entry in compared) for way in range(len(COMPARED))]
    outcomes = Counter(outcome for entry in compared for outcome in entry.results[1].short_windows)
    cells = [
        name,
        str(len(compared)),
        *(_errors(compared, way) for way in range(len(COMPARED))),
        *(f"{second:.2f} s" for second in seconds),
        f"{seconds[0] / seconds[1]:.1f}",
        ", ".join(f"{outcome} {count}" for outcome, count in outcomes.most_common()),
    ]
    return f"| {' | '.join(cells)} |"


def _errors(compared: Sequence[ComparedClip], way: int) -> str:
    """Returns the error rate, or the share of slot values that were not found."""
    values = [value for entry in compared for value in entry.clip.values]
    if values:
        missing = sum(
            _plain(value, "en") not in _plain(entry.results[way].text, "en")
            for entry in compared
            for value in entry.clip.values
        )
        return f"{100 * missing / len(values):.1f} % of {len(values)} slots"
    errors = errors_of(_scored(entry, way) for entry in compared)
    wrong_language = sum(entry.results[way].language != entry.clip.language for entry in compared)
    language = f", {wrong_language} in a wrong language" if wrong_language else ""
    return f"{errors.percent:.1f} % of {errors.reference_length}{language}"


def _scored(entry: ComparedClip, way: int) -> ScoredText:
    split = characters if entry.clip.language in WITHOUT_BLANKS else words
    texts = (entry.clip.text, entry.results[way].text)
    return ScoredText(
        entry.clip.path.name, *(split(_plain(text, entry.clip.language)) for text in texts)
    )


def _plain(text: str, language: str) -> str:
    return normalised(text.strip(), language)


def _show(entry: ComparedClip) -> None:
    full, short = entry.results
    doubts = [outcome for outcome in short.short_windows if outcome != "accepted"]
    if doubts or full.text != short.text or full.is_unsure != short.is_unsure:
        print(
            f"  {entry.clip.path.name} {', '.join(doubts)}"
            f" unsure {full.is_unsure}/{short.is_unsure}"
        )
        print(f"    30 s:  {full.language} {full.text}\n    short: {short.language} {short.text}")


if __name__ == "__main__":
    sys.exit(main())
