"""Voices of a checkpoint: its speakers, and what is known of the published ones."""

from collections.abc import Collection, Mapping, Sequence

from core.errors import ConfigError
from engines.base import Gender

PUBLISHED: Mapping[str, Gender] = {
    "spkr_67": "male",
    "spkr_63": "male",
    "spkr_74": "male",
    "spkr_76": "male",
    "spkr_53": "female",
    "spkr_60": "female",
    "spkr_62": "male",
    "spkr_66": "male",
    "spkr_68": "male",
    "spkr_69": "male",
    "spkr_70": "male",
    "spkr_75": "male",
    "spkr_77": "male",
}
"Gender of the thirteen voices that the makers of Indri 0.1 recommend, the default first."


def choose_voices(speakers: Collection[str], wanted: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of the voices, the default first. `speakers`: those of the checkpoint;
    `wanted`: those of the settings. Raises ConfigError for a speaker that does not exist."""
    for name in wanted:
        if name not in speakers:
            known = ", ".join(speakers)
            raise ConfigError(f"tts.options.voices: no speaker {name!r}; there are: {known}")
    published = tuple(name for name in PUBLISHED if name in speakers)
    return tuple(wanted) or published or tuple(speakers)
