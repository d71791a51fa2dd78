"""Adds voices that are made of recordings to the engines of the sessions."""

from dataclasses import replace

from core.ports import Metrics
from engines.base import Tts
from pipeline.services import EngineSet
from pipeline.speech.fallback import FallbackTts
from pipeline.speech.language.language_id import TextLanguageDetector
from pipeline.speech.own_voices import OWN_VOICES, OwnVoiceStore, OwnVoicesTts
from server.compose.llm_and_tts import FALLBACK_TTS
from serving.workers.process_tts import ProcessTts


def with_own_voices(
    engines: EngineSet,
    tts: ProcessTts,
    store: OwnVoiceStore,
    languages: TextLanguageDetector,
    metrics: Metrics,
) -> EngineSet:
    """Returns the engines with one more, whose voices are those of the caller's key. `tts`: the
    engine that speaks them. espeak speaks a clause that it cannot speak."""
    own: Tts = OwnVoicesTts(tts, store)
    if (fallback := engines.tts.get(FALLBACK_TTS)) is not None:
        own = FallbackTts(own, fallback, languages, metrics)
    return replace(engines, tts={**engines.tts, OWN_VOICES: own})
