"""Turns the vectors of windows into spans of time with one speaker each. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, product
from string import ascii_uppercase

import numpy as np

from core.audio import ASR_RATE_HZ, samples_to_ms
from core.conversation.speakers import (
    GE2E_THRESHOLDS,
    SpeakerProfile,
    VoiceThresholds,
    VoiceVector,
    nearest_speaker,
)
from pipeline.transcription.diarisation.clustering import (
    Floats,
    Labels,
    cluster_voices,
    group_means,
)
from pipeline.transcription.diarisation.windows import Window

SMALL_WINDOWS = 4
"""Most windows of a small group. Vectors of a few windows are so uncertain that their mean cosines
with others are too low. So such a group has a threshold of its own."""

MIN_WINDOWS = 2
"""Fewest windows of a speaker, except the one who speaks longest. A single window that is like no
other has two voices in it, or a noise."""

MAX_SPEAKERS = 50
"Most speakers of a recording: those who speak longest. It bounds the memory for odd recordings."

CHANGE_COST = 0.1
"""Cost of a change of speakers within a run of speech: the cosine of another voice must be higher
by more than this. A change between two runs costs nothing, because people take turns in pauses."""

MAX_BRIDGED_MS = 500
"Longest pause of one speaker that counts as speech: people breathe within a sentence."


@dataclass(frozen=True, slots=True)
class SpeakerSpan:
    """A stretch of speech of one speaker."""

    start_ms: float
    end_ms: float
    speaker: str


def find_speakers(
    windows: Sequence[Window],
    vectors: Sequence[VoiceVector | None],
    known: Sequence[Sequence[SpeakerProfile]] = (),
    thresholds: VoiceThresholds = GE2E_THRESHOLDS,
) -> list[SpeakerSpan]:
    """Returns who speaks when, in order and without overlap.

    `windows`: in order. `vectors`: one for each window; None: too little speech, so the speech
    counts as that of the speaker before or after it. `known`: people, the first lists before the
    later ones. `thresholds`: those of the model of the vectors. Blocks: some seconds for hours of
    speech.
    """
    indices = [index for index, vector in enumerate(vectors) if vector is not None]
    heard = np.array([vectors[index] for index in indices], np.float32)
    voices = _voices(heard, thresholds) if indices else np.zeros((1, 1), np.float32)
    scores = np.zeros((len(windows), len(voices)), np.float32)
    if indices:
        scores[indices] = heard @ voices.T
    speakers = _best_path(windows, scores)
    names = _names(voices, speakers, known, thresholds.known)
    return _spans(windows, [names[speaker] for speaker in speakers])


def _voices(heard: Floats, thresholds: VoiceThresholds) -> Floats:
    """Returns a vector for each speaker, shape (speakers, dimensions), of length 1."""
    groups = cluster_voices(heard, thresholds.group)
    sizes, means = np.bincount(groups), group_means(heard, groups)
    voices = means / np.maximum(np.linalg.norm(means, axis=1, keepdims=True), 1e-12)
    kept: list[int] = []
    for group in np.argsort(-sizes, kind="stable")[:MAX_SPEAKERS]:
        if kept and sizes[group] < MIN_WINDOWS:
            break
        cosine = float((voices[kept] @ voices[group]).max(initial=-1.0))
        if sizes[group] > SMALL_WINDOWS or cosine < thresholds.small_group:
            kept.append(int(group))
    chosen: Floats = voices[kept]
    return chosen


def _best_path(windows: Sequence[Window], scores: Floats) -> Labels:
    """Returns the speaker of each window so that the sum of the scores, less the cost of changes,
    is highest (Viterbi). `scores`: shape (windows, speakers)."""
    number, speakers = scores.shape
    best = np.zeros(speakers, np.float32)
    former = np.zeros((number, speakers), np.intp)
    for index, window in enumerate(windows):
        is_same_run = index > 0 and windows[index - 1].run == window.run
        nearest = int(best.argmax())
        changed = best[nearest] - (CHANGE_COST if is_same_run else 0.0)
        former[index] = np.where(best >= changed, np.arange(speakers), nearest)
        best = np.maximum(best, changed) + scores[index]
    path = np.zeros(number, np.intp)
    speaker = int(best.argmax())
    for index in range(number - 1, -1, -1):
        path[index] = speaker
        speaker = int(former[index, speaker])
    return path


def _names(
    voices: Floats,
    speakers: Labels,
    known: Sequence[Sequence[SpeakerProfile]],
    threshold: float,
) -> dict[int, str]:
    """Returns the name of each speaker: that of a known person, or else A, B, ... in the order in
    which they first speak. Voices of one known person get one name. `threshold`: score from which a
    voice is known."""
    letters = _letters({profile.name for profiles in known for profile in profiles})
    names: dict[int, str] = {}
    for speaker in map(int, speakers):
        if speaker not in names:
            matches = (nearest_speaker(voices[speaker], profiles, threshold) for profiles in known)
            match = next(filter(None, matches), None)
            names[speaker] = match.name if match else next(letters)
    return names


def _letters(taken: set[str]) -> Iterator[str]:
    """Yields A, B, ..., Z, AA, AB, ..., without the names that are taken."""
    for length in count(1):
        for letters in product(ascii_uppercase, repeat=length):
            if (name := "".join(letters)) not in taken:
                yield name


def _spans(windows: Sequence[Window], speakers: Sequence[str]) -> list[SpeakerSpan]:
    """Returns the spans. Within a run, two neighbouring windows are divided halfway between their
    middles. Short pauses of a speaker are bridged."""
    spans: list[SpeakerSpan] = []
    borders = [0] * (len(windows) + 1)
    for index in range(1, len(windows)):
        before, after = windows[index - 1], windows[index]
        borders[index] = (before.start + before.end + after.start + after.end) // 4
    for index, (window, speaker) in enumerate(zip(windows, speakers, strict=True)):
        start, end = window.run
        is_first = not index or windows[index - 1].run != window.run
        is_last = index == len(windows) - 1 or windows[index + 1].run != window.run
        start_ms = samples_to_ms(start if is_first else borders[index], ASR_RATE_HZ)
        end_ms = samples_to_ms(end if is_last else borders[index + 1], ASR_RATE_HZ)
        if spans and spans[-1].speaker == speaker and start_ms - spans[-1].end_ms <= MAX_BRIDGED_MS:
            start_ms = spans.pop().start_ms
        spans.append(SpeakerSpan(start_ms, end_ms, speaker))
    return spans
