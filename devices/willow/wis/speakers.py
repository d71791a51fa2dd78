"""The six speakers of WIS: the names that its clients may send as `speaker`, and our voices."""

from collections.abc import Mapping

from engines.base import Tts
from pipeline.speech.voices import find_voices

SPEAKERS: Mapping[str, tuple[str, ...]] = {
    "CLB": (),  # American woman; every Willow device asks for it until somebody chooses another
    "SLT": ("hibari/kore", "kokoro/af_bella", "espeak/en-us+f3"),  # American woman
    "BDL": ("hibari/fenrir", "kokoro/am_michael", "espeak/en-us+m3"),  # American man
    "RMS": ("kokoro/am_adam", "espeak/en-us+m7"),  # American man
    "AWB": ("hibari/fable", "kokoro/bm_george", "espeak/en-gb-scotland"),  # Scottish man
    "KSP": ("kokoro/bm_lewis", "espeak/en-gb+m2"),  # Indian man
}
"""Speaker -> ids of voices, the best first. An installation uses the first one that it has. (): the
voice that speaks without a `speaker`."""


def speaker_voice(engines: Mapping[str, Tts], speaker: str) -> str | None:
    """Returns the id of the voice for a speaker of WIS; None for other names, and for a speaker
    with the voice of the language. Case does not count."""
    ids = SPEAKERS.get(speaker.upper(), ())
    return next((voice for voice in ids if find_voices(engines, voice)), None)
