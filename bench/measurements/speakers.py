"""Measures how well people are known again by their voices, beside others who are not enrolled.

    python -m bench.measurements.speakers MODEL_FOLDER [--data FOLDER] [--seconds 1 2 4]

`--data` holds a folder with recordings for each person, and a folder `others` with one recording
each of guests. The first three recordings of a person make the profile, the others are trials, cut
to `--seconds` of sound from the first word on. A profile is made of clear recordings; only the
trials are changed: sent through Opus at 24 kbit/s, 10 dB above the noise of rooms and machines, or
recorded 5 m away in a synthetic room.

EER: share of errors at the threshold where people are refused as often as others are accepted.
False rejection: share of people's trials that are refused at the threshold that accepts 1 % of the
pairs of a guest and a profile. Named: what the server says at its own threshold. Guard: whom a
guard would admit, who has to be sure in each part of the utterance. Two more sounds are about
guards only: `over`, a guest talks all the time, as loudly; `then`, a guest says the second half.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

import numpy as np

from bench.measurements.material.changed_voices import make_far, unchanged
from bench.measurements.material.noisy_clips import noise_adder
from bench.tools.stats import machine, markdown, median_and_range
from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from core.conversation.speakers import (
    SpeakerProfile,
    VoiceVector,
    confirmed_speaker,
    mean_vector,
    nearest_speaker,
)
from core.errors import EarshotError
from engines.base.speaker import SpeakerItem, SpeakerModel
from engines.registry import load
from engines.speaker.sherpa.model_file import find_speaker_file
from media.codecs.opus import OpusDecoder, OpusEncoder, OpusSettings
from media.files.decode import decode_file
from serving.placement.sherpa import SHERPA
from serving.speaker.model import GE2E
from serving.speaker.recognition import guard_parts

OTHERS = "others"
"Folder with the guests."

ENROLMENT_CLIPS = 3
"Recordings of which a profile is made."

GUESTS_ACCEPTED = 0.01
"Share of pairs of a guest and a profile that may be accepted."

SPEECH_DBFS = -40.0
"Level from which a recording's sound counts as speech when its beginning is looked for."

OPUS_BPS = 24_000
NOISE_DB = 10.0


@dataclass
class Trials:
    """Scores of one sound and length."""

    own: list[float] = field(default_factory=list)
    "Scores of people's recordings with their own profiles."
    other: list[float] = field(default_factory=list)
    "Scores of guests' recordings with each profile."
    right: int = 0
    "Recordings of people that got the right name."
    wrong: int = 0
    "Recordings of people that got another person's name."
    guests_named: int = 0
    "Recordings of guests that got any name."
    admitted: int = 0
    "Recordings of people that a guard admits as this person."
    admitted_wrongly: int = 0
    "Recordings that a guard admits as another person, or of guests as anybody."
    guests: int = 0
    refused: int = 0
    "Recordings with too little speech for a vector."
    cpu_ms: list[float] = field(default_factory=list)
    "Processor time of each vector."


def main() -> int:
    """Runs the measurement and prints a table."""
    arguments = _arguments()
    try:
        is_sherpa = find_speaker_file(arguments.model) is not None
        model = load("speaker", SHERPA if is_sherpa else GE2E, {"model": str(arguments.model)})
        people, guests = find_recordings(arguments.data / "speakers")
    except EarshotError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{machine()}; {len(people)} people, {len(guests)} guests")
    profiles = [_profile(model, name, clips[:ENROLMENT_CLIPS]) for name, clips in people.items()]
    rows = []
    for sound in arguments.sounds:
        for seconds in arguments.seconds:
            change = sound_change(sound, arguments.data, guests)
            trials = measure(model, people, guests, profiles, change, seconds)
            rows.append(_row(sound, seconds, trials))
    head = ("sound", "s", "EER %", "false rejection %", "named right, wrong", "guests named")
    guard = ("guard admits right", "guard admits wrongly")
    print(markdown((*head, *guard, "no vector", "ms of a core"), rows))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", type=Path, help="folder of the model")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 2.0, 4.0])
    names = ("clean", "opus", "noise", "far", "over", "then")
    parser.add_argument("--sounds", nargs="+", default=list(names), choices=names)
    return parser.parse_args()


def find_recordings(folder: Path) -> tuple[Mapping[str, Sequence[Pcm]], Sequence[Pcm]]:
    """Returns the recordings of each person by name, and one of each guest, at 16 kHz."""
    people = {
        path.name: [decode_file(clip, ASR_RATE_HZ) for clip in sorted(path.glob("*.flac"))]
        for path in sorted(folder.iterdir())
        if path.is_dir() and path.name != OTHERS
    }
    guests = sorted((folder / OTHERS).glob("*.flac"))
    return people, [decode_file(clip, ASR_RATE_HZ) for clip in guests]


def sound_change(name: str, data: Path, guests: Sequence[Pcm]) -> Callable[[Pcm], Pcm]:
    """Returns a new change of recordings. Each begins with the first of the noises, so that a row
    does not depend on those before it."""
    match name:
        case "opus":
            return through_opus
        case "noise":
            return noise_adder(data, NOISE_DB)
        case "far":
            return make_far
        case "over":
            others = cycle(guests)
            return lambda clip: talked_over(clip, next(others))
        case "then":
            others = cycle(guests)
            return lambda clip: continued_by(clip, next(others))
        case _:
            return unchanged


def cut(clip: Pcm, seconds: float) -> Pcm:
    """Returns the recording from its first word on, at most `seconds` long."""
    blocks = clip[: len(clip) // 320 * 320].reshape(-1, 320).astype(np.float64)
    is_loud = np.mean(np.square(blocks), axis=1) > (32768 * 10 ** (SPEECH_DBFS / 20)) ** 2
    start = 320 * int(np.argmax(is_loud))
    return clip[start : start + round(seconds * ASR_RATE_HZ)]


def through_opus(clip: Pcm) -> Pcm:
    """Returns the recording as it comes out of Opus."""
    encoder = OpusEncoder(ASR_RATE_HZ, OpusSettings(bitrate_bps=OPUS_BPS, application="voip"))
    decoder, size = OpusDecoder(ASR_RATE_HZ), ms_to_samples(20, ASR_RATE_HZ)
    frames = [clip[at : at + size] for at in range(0, len(clip) - size + 1, size)]
    return np.concatenate([decoder.decode(encoder.encode(frame)) for frame in frames])


def talked_over(clip: Pcm, other: Pcm) -> Pcm:
    """Returns the recording with another voice of the same level over all of it."""
    second = cut(other, len(clip) / ASR_RATE_HZ).astype(np.float64)
    first = clip[: len(second)].astype(np.float64)
    gain = np.sqrt(np.mean(np.square(first)) / max(1.0, float(np.mean(np.square(second)))))
    mixed: Pcm = np.clip(first + gain * second, -32768, 32767).astype(np.int16)
    return mixed


def continued_by(clip: Pcm, other: Pcm) -> Pcm:
    """Returns the first half of the recording, then as much of another."""
    half = len(clip) // 2
    return np.concatenate([clip[:half], cut(other, half / ASR_RATE_HZ)])


def measure(
    model: SpeakerModel,
    people: Mapping[str, Sequence[Pcm]],
    guests: Sequence[Pcm],
    profiles: Sequence[SpeakerProfile],
    change: Callable[[Pcm], Pcm],
    seconds: float,
) -> Trials:
    """Compares every recording that is in no profile with all profiles."""
    trials = Trials()
    clips = [(name, clip) for name in people for clip in people[name][ENROLMENT_CLIPS:]]
    for name, clip in (*clips, *((None, clip) for clip in guests)):
        sound = change(cut(clip, seconds))
        began_s = time.process_time()
        vector = _vector(model, sound)
        trials.cpu_ms.append(1000 * (time.process_time() - began_s))
        trials.guests += name is None
        if vector is None:
            trials.refused += 1
            continue
        scores = {profile.id: float(vector @ profile.vector) for profile in profiles}
        nearest = nearest_speaker(vector, profiles)
        match = nearest.name if nearest else None
        admitted = _admitted(model, sound, profiles)
        trials.admitted += name is not None and admitted == name
        trials.admitted_wrongly += admitted is not None and admitted != name
        if name is None:
            trials.other.extend(scores.values())
            trials.guests_named += match is not None
        else:
            trials.own.append(scores[name])
            trials.right += match == name
            trials.wrong += match not in (None, name)
    return trials


def equal_error_rate(own: Sequence[float], other: Sequence[float]) -> float:
    """Returns the share of errors at the threshold where both kinds are equally frequent."""
    thresholds = np.sort(np.concatenate([own, other]))
    rejected = np.searchsorted(np.sort(own), thresholds) / len(own)
    accepted = 1 - np.searchsorted(np.sort(other), thresholds) / len(other)
    best = int(np.argmin(np.abs(rejected - accepted)))
    return float((rejected[best] + accepted[best]) / 2)


def false_rejection(own: Sequence[float], other: Sequence[float], accepted: float) -> float:
    """Returns the share of `own` below the threshold that accepts this share of `other`."""
    allowed = int(accepted * len(other))
    threshold = np.sort(other)[::-1][allowed]
    return float(np.mean(np.asarray(own) <= threshold))


def _profile(model: SpeakerModel, name: str, clips: Sequence[Pcm]) -> SpeakerProfile:
    vectors = [_vector(model, clip) for clip in clips]
    return SpeakerProfile(name, name, mean_vector([v for v in vectors if v is not None]))


def _vector(model: SpeakerModel, clip: Pcm) -> VoiceVector | None:
    (result,) = model.embed([SpeakerItem(clip.astype("<i2").tobytes())])
    return np.frombuffer(result.vector, "<f4").astype(np.float32) if result.vector else None


def _admitted(model: SpeakerModel, sound: Pcm, profiles: Sequence[SpeakerProfile]) -> str | None:
    """Returns the name of the person whom a guard takes for the speaker; None: nobody."""
    heard = [_vector(model, part) for part in guard_parts(sound)]
    match = confirmed_speaker([vector for vector in heard if vector is not None], profiles)
    return match.name if match else None


def _row(sound: str, seconds: float, trials: Trials) -> list[str]:
    rejected = false_rejection(trials.own, trials.other, GUESTS_ACCEPTED)
    return [
        sound,
        f"{seconds:g}",
        f"{100 * equal_error_rate(trials.own, trials.other):.1f}",
        f"{100 * rejected:.1f}",
        f"{trials.right}, {trials.wrong} of {len(trials.own)}",
        f"{trials.guests_named} of {trials.guests}",
        f"{trials.admitted} of {len(trials.own)}",
        f"{trials.admitted_wrongly} of {len(trials.own) + trials.guests}",
        str(trials.refused),
        median_and_range(trials.cpu_ms),
    ]


if __name__ == "__main__":
    sys.exit(main())
