"""Spoken questions for measurements, synthesised by eSpeak."""

import numpy as np

from bench.client.microphone import RATE_HZ
from core.audio import Pcm, silence
from engines.tts.espeak.library import NORMAL_WORDS_PER_MINUTE, espeak_library
from media.resample import Resampler

COMMANDS = (
    "turn on the kitchen lights",
    "what time is it",
    "set a timer for ten minutes",
    "turn off the bedroom lights",
    "how much time is left on the timer",
    "what is the temperature in the living room",
    "cancel the timer",
    "add milk to the shopping list",
    "turn off the kitchen lights",
    "what day is it today",
)

LEAD_MS = 200
"Silence before the speech: nobody speaks at the moment at which a microphone opens."


def synthesise(text: str, voice: str = "en-us") -> Pcm:
    """Returns `text` spoken by eSpeak, at 24 kHz, after LEAD_MS of silence. Raises EngineMissing.

    voice: eSpeak's name of a voice.
    """
    parts: list[Pcm] = [silence(0, RATE_HZ)]

    def sink(pcm: Pcm) -> bool:
        parts.append(pcm)
        return True

    library = espeak_library()
    library.synthesise(text, voice, NORMAL_WORDS_PER_MINUTE, sink)
    resampler = Resampler(library.rate_hz, RATE_HZ)
    speech = [resampler.push(np.concatenate(parts)), resampler.flush()]
    return np.concatenate([silence(LEAD_MS, RATE_HZ), *speech])
