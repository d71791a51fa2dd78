"""Recorded turns of people: where they pause within a turn, and where the turn really ends."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.measurements.material.noisy_clips import in_quiet_room
from bench.tools.speech_bounds import find_speech_bounds
from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples, silence
from engines.base import VadEngine
from media.files.decode import decode_file
from pipeline.user_turn.speech_detection.endpointing import HYSTERESIS

LEAST_PAUSE_MS = 200
LONGEST_PAUSE_MS = 5000
"Length of the pauses that count, as in livekit's eot-bench."

VOICED = 0.5 - HYSTERESIS
"VAD probability that counts as speech here. It is low, so that a pause is surely a pause."

LEAD_MS = 500
TAIL_MS = 3000
"Quiet room after a clip: longer than the longest wait, and than the answer needs to begin."
LONGEST_MS = 60_000
"Longest utterance of a session; longer clips are left out."

ORDERS = "orders"
SENTENCES = "read sentences"
FOLDERS = ((ORDERS, "real-commands"), (SENTENCES, "speakers"), (SENTENCES, "speech/en"))
"Kind of turn, and the folder of recordings below `--data`."
SUFFIXES = {".flac", ".wav", ".mp3", ".ogg", ".opus"}
NOT_PEOPLE = ("azure-", "ha_", "tinygrad_")
"Beginnings of the names of recordings that are, or may be, computers' voices."


@dataclass(frozen=True, slots=True)
class SpokenTurn:
    """One recording with a quiet room around it. Positions are samples at 16 kHz."""

    name: str
    kind: str
    pcm: Pcm
    pauses: tuple[tuple[int, int], ...]
    "Begin and end of each pause within the turn."
    end: int
    "One past the last sample of speech."
    is_timed: bool
    """True if a delay may be measured from `end`: the recording ends with the end of a sentence,
    and its last sound is known."""


def spoken_turns(data: Path, vad: VadEngine) -> Iterator[SpokenTurn]:
    """Yields the turns of people below `data`. Raises OSError."""
    finished = _finished_sentences(data / "speech")
    for kind, folder in FOLDERS:
        for path in sorted((data / folder).rglob("*")):
            if path.suffix not in SUFFIXES or path.name.startswith(NOT_PEOPLE):
                continue
            found = spoken_turn(
                path.name,
                kind,
                decode_file(path),
                vad,
                is_whole=kind == ORDERS or path in finished,
            )
            if found is not None:
                yield found


def spoken_turn(
    name: str, kind: str, pcm: Pcm, vad: VadEngine, *, is_whole: bool
) -> SpokenTurn | None:
    """Returns the turn with its pauses; None without speech, or if it is too long. `is_whole`: it
    ends with the end of a sentence."""
    if len(pcm) > ms_to_samples(LONGEST_MS, ASR_RATE_HZ):
        return None
    lead = ms_to_samples(LEAD_MS, ASR_RATE_HZ)
    heard = in_quiet_room(
        np.concatenate([silence(LEAD_MS, ASR_RATE_HZ), pcm, silence(TAIL_MS, ASR_RATE_HZ)])
    )
    voiced = _voiced_frames(heard, vad)
    if not len(voiced):
        return None
    size = vad.open().frame_samples
    gaps = np.flatnonzero(np.diff(voiced) > 1)
    spans = [(int(voiced[at] + 1) * size, int(voiced[at + 1]) * size) for at in gaps]
    shortest = ms_to_samples(LEAST_PAUSE_MS, ASR_RATE_HZ)
    longest = ms_to_samples(LONGEST_PAUSE_MS, ASR_RATE_HZ)
    pauses = tuple(span for span in spans if shortest <= span[1] - span[0] <= longest)
    known_end = find_speech_bounds(pcm, ASR_RATE_HZ).end
    end = int(voiced[-1] + 1) * size if known_end is None else lead + known_end
    return SpokenTurn(name, kind, heard, pauses, end, is_whole and known_end is not None)


def _voiced_frames(pcm: Pcm, vad: VadEngine) -> np.ndarray:
    detector = vad.open()
    size = detector.frame_samples
    starts = range(0, len(pcm) - size + 1, size)
    return np.flatnonzero([detector.push(pcm[at : at + size]) >= VOICED for at in starts])


def _finished_sentences(folder: Path) -> set[Path]:
    """Returns the recordings whose transcript ends with the mark that ends a sentence."""
    with (folder / "transcripts.tsv").open(encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
        return {folder / row["path"] for row in rows if row["transcript"].endswith((".", "?", "!"))}
