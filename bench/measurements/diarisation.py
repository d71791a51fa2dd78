"""Measures how well speakers are told apart in conversations, without knowing how many there are.

    python -m bench.measurements.diarisation MODEL_FOLDER [--data FOLDER] [--people six|guests]

Conversations are mixed from clips of `--data`/speakers: 2, 3 or 4 people take turns of 1.5 to 8 s
with pauses of 0.2 to 1 s, the same ones in each run. `guests` are people with one clip each: the
threshold was chosen with them (`--thresholds 0.6 0.65 0.7`). `six` are others, with ten clips each:
the figures are theirs. Kinds of conversations: `turns`; `overlap`, where every third turn begins up
to a second before the one before has ended; `noise`, with the noise of rooms and machines 10 dB
below.

Missed, false alarm, confusion and DER: shares of the real speech. A pause of up to half a second
within a turn counts as speech. Collar: time around each start and end that does not count.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bench.measurements.material.diarisation_error import (
    NO_ERROR,
    DiarisationError,
    Turn,
    diarisation_error,
)
from bench.measurements.material.noisy_clips import noise_adder
from bench.measurements.speakers import find_recordings
from bench.tools.stats import machine, markdown
from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, samples_to_ms
from core.conversation.speakers import GE2E_THRESHOLDS, VoiceThresholds, VoiceVector
from core.errors import EarshotError
from engines.base import VadEngine
from engines.base.speaker import SpeakerItem, SpeakerModel
from engines.registry import load
from pipeline.transcription.diarisation.timeline import find_speakers
from pipeline.transcription.diarisation.windows import Window, segment_windows
from pipeline.transcription.recording import ANY_LENGTH_MS, BLOCK_MS
from pipeline.transcription.segmenter import Segmenter
from serving.speaker.model import GE2E
from serving.speaker.recognition import vector_of

SPEAKERS = (2, 3, 4)
"Numbers of people in a conversation."

TURN_MS, PAUSE_MS, OVERLAP_MS = (1500, 8000), (200, 1000), (300, 1000)
"Shortest and longest turn, pause, and time in which two people speak."

OVERLAP_EVERY = 3
"In conversations with overlap, every such turn begins before the one before has ended."

SPEECH_DBFS = -40.0
"Level from which a clip's sound counts as speech."

MAX_PAUSE_MS = 500
"Longest silence within a turn that counts as speech."

MIN_SOUND_MS = 6000
"Least sound of a guest: with less they would have one turn only."

NOISE_DB = 10.0
COLLAR_MS = 250.0
HISS = 3.0
"Standard deviation of the noise of a good microphone, in the pauses, too."

_BLOCK = 320


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation that was mixed."""

    pcm: Pcm
    turns: Sequence[Turn]
    people: int


@dataclass(frozen=True, slots=True)
class HeardConversation:
    """A conversation whose voices were turned into vectors."""

    conversation: Conversation
    windows: Sequence[Window]
    vectors: Sequence[VoiceVector | None]
    cpu_s: float
    "Processor time of VAD and vectors."


def main() -> int:
    """Runs the measurement and prints a table."""
    arguments = _arguments()
    try:
        model: SpeakerModel = load("speaker", GE2E, {"model": str(arguments.model)})
        vad: VadEngine = load("vad", "gated", {})
        people, guests = find_recordings(arguments.data / "speakers")
    except EarshotError as error:
        print(error, file=sys.stderr)
        return 1
    shortest = ms_to_samples(MIN_SOUND_MS, ASR_RATE_HZ)
    clips = [[clip] for clip in guests if len(clip) >= shortest]
    if arguments.people == "six":
        clips = [list(clips_of_one) for clips_of_one in people.values()]
    print(f"{machine()}; {len(clips)} people, {arguments.each} conversations per number of people")
    rows: list[list[str]] = []
    for kind in arguments.kinds:
        heard = [
            hear(conversation, vad, model)
            for conversation in conversations(clips, arguments.each, kind, arguments.data)
        ]
        for threshold in arguments.thresholds:
            for number in (*SPEAKERS, 0):
                chosen = [one for one in heard if number in (0, one.conversation.people)]
                rows += _rows(kind, threshold, number, chosen)
    head = ("kind", "threshold", "people", "collar", "missed", "false alarm", "confusion", "DER")
    print(markdown((*head, "number right, too many", "x real time"), rows))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, help="folder of the model")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--people", choices=("six", "guests"), default="six")
    parser.add_argument("--each", type=int, default=6, help="conversations per number of people")
    parser.add_argument("--thresholds", type=float, nargs="+", default=[GE2E_THRESHOLDS.group])
    kinds = ("turns", "overlap", "noise")
    parser.add_argument("--kinds", nargs="+", default=list(kinds), choices=kinds)
    return parser.parse_args()


def conversations(
    people: Sequence[Sequence[Pcm]], each: int, kind: str, data: Path
) -> Iterator[Conversation]:
    """Yields conversations. The same arguments give the same ones."""
    random = np.random.default_rng(1)
    waiting: list[int] = []
    add_noise = noise_adder(data, NOISE_DB) if kind == "noise" else None
    for number in SPEAKERS * each:
        if len(waiting) < number:
            waiting = [int(one) for one in random.permutation(len(people))]
        chosen, waiting = waiting[:number], waiting[number:]
        clips = [
            [people[one][int(i)] for i in random.permutation(len(people[one]))] for one in chosen
        ]
        mixed = mix(clips, random, has_overlap=kind == "overlap")
        yield (
            mixed
            if add_noise is None
            else Conversation(add_noise(mixed.pcm), mixed.turns, mixed.people)
        )


def mix(
    people: Sequence[Sequence[Pcm]], random: np.random.Generator, *, has_overlap: bool
) -> Conversation:
    """Mixes a conversation out of the clips of each person, until a person who has spoken before
    the others would have to go on alone."""
    pieces = [[piece for clip in clips for piece in _pieces(clip, random)] for clips in people]
    placed: list[tuple[int, Pcm]] = []
    turns: list[Turn] = []
    end, last = ms_to_samples(PAUSE_MS[0], ASR_RATE_HZ), -1
    while open_people := [one for one, left in enumerate(pieces) if left and one != last]:
        last = int(random.choice(open_people))
        pcm = pieces[last].pop(0)
        start = end + ms_to_samples(int(random.integers(*PAUSE_MS)), ASR_RATE_HZ)
        if has_overlap and placed and len(placed) % OVERLAP_EVERY == 0:
            start = end - ms_to_samples(int(random.integers(*OVERLAP_MS)), ASR_RATE_HZ)
        end = start + len(pcm)
        placed.append((start, pcm))
        turns += _spoken(start, pcm, str(last))
    sound = random.normal(0, HISS, end + ms_to_samples(PAUSE_MS[1], ASR_RATE_HZ))
    for start, pcm in placed:
        sound[start : start + len(pcm)] += pcm
    return Conversation(
        np.clip(np.round(sound), -32768, 32767).astype(np.int16), turns, len(people)
    )


def _pieces(clip: Pcm, random: np.random.Generator) -> Iterator[Pcm]:
    """Yields a clip in turns without silence at their ends."""
    shortest = ms_to_samples(TURN_MS[0], ASR_RATE_HZ)
    at = 0
    while len(clip) - at >= shortest:
        size = ms_to_samples(int(random.integers(*TURN_MS)), ASR_RATE_HZ)
        piece = _trimmed(clip[at : at + size])
        at += size
        if len(piece) >= shortest:
            yield piece


def _trimmed(pcm: Pcm) -> Pcm:
    """Returns the sound without silence at its ends."""
    loud = _loud_blocks(pcm)
    return pcm[_BLOCK * loud[0] : _BLOCK * (loud[-1] + 1)] if len(loud) else pcm[:0]


def _spoken(start: int, pcm: Pcm, speaker: str) -> Iterator[Turn]:
    """Yields the speech of a turn that begins at the sample `start`, without longer pauses."""
    longest = ms_to_samples(MAX_PAUSE_MS, ASR_RATE_HZ) // _BLOCK
    loud = _loud_blocks(pcm)
    for part in np.split(loud, np.flatnonzero(np.diff(loud) > longest) + 1):
        first, end = start + _BLOCK * int(part[0]), start + _BLOCK * (int(part[-1]) + 1)
        yield samples_to_ms(first, ASR_RATE_HZ), samples_to_ms(end, ASR_RATE_HZ), speaker


def _loud_blocks(pcm: Pcm) -> npt.NDArray[np.intp]:
    """Returns the numbers of the blocks with speech, by their level."""
    blocks = pcm[: len(pcm) // _BLOCK * _BLOCK].reshape(-1, _BLOCK).astype(np.float64)
    return np.flatnonzero(
        np.mean(np.square(blocks), axis=1) > (32768 * 10 ** (SPEECH_DBFS / 20)) ** 2
    )


def hear(conversation: Conversation, vad: VadEngine, model: SpeakerModel) -> HeardConversation:
    """Turns the voices of a conversation into vectors, as the server does with a recording."""
    began_s = time.process_time()
    segmenter = Segmenter(vad.open(), ms_to_samples(ANY_LENGTH_MS, ASR_RATE_HZ))
    step, segments = ms_to_samples(BLOCK_MS, ASR_RATE_HZ), []
    for start in range(0, len(conversation.pcm), step):
        segments += segmenter.push(conversation.pcm[start : start + step])
    windows: list[Window] = []
    vectors: list[VoiceVector | None] = []
    for segment in (*segments, *segmenter.end()):
        for window, pcm in segment_windows(segment):
            windows.append(window)
            vectors.append(None if pcm is None else _vector(model, pcm))
    return HeardConversation(conversation, windows, vectors, time.process_time() - began_s)


def _vector(model: SpeakerModel, pcm: Pcm) -> VoiceVector | None:
    (result,) = model.embed([SpeakerItem(pcm.astype("<i2").tobytes())])
    return vector_of(result)


def _rows(
    kind: str, threshold: float, number: int, heard: Sequence[HeardConversation]
) -> Iterator[list[str]]:
    """Yields a row with and one without the collar. `number`: of people, or 0 for all."""
    right, too_many, cpu_s, audio_s = 0, 0, 0.0, 0.0
    errors: dict[float, DiarisationError] = {0.0: NO_ERROR, COLLAR_MS: NO_ERROR}
    for one in heard:
        began_s = time.process_time()
        spans = find_speakers(one.windows, one.vectors, thresholds=VoiceThresholds(group=threshold))
        cpu_s += one.cpu_s + time.process_time() - began_s
        audio_s += len(one.conversation.pcm) / ASR_RATE_HZ
        people = len({span.speaker for span in spans})
        right += people == one.conversation.people
        too_many += people > one.conversation.people
        found = [(span.start_ms, span.end_ms, span.speaker) for span in spans]
        for collar_ms in errors:
            errors[collar_ms] += diarisation_error(
                one.conversation.turns, found, collar_ms=collar_ms
            )
    for collar_ms, error in errors.items():
        parts = (error.missed_ms, error.false_alarm_ms, error.confusion_ms)
        shares = [part_ms / error.speech_ms for part_ms in parts]
        yield [
            kind,
            f"{threshold:g}",
            str(number or "all"),
            f"{collar_ms / 1000:g} s",
            *(f"{100 * share:.1f} %" for share in (*shares, error.rate)),
            f"{right}, {too_many} of {len(heard)}",
            f"{cpu_s / audio_s:.3f}",
        ]


if __name__ == "__main__":
    sys.exit(main())
