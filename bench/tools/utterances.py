"""A whole recording as one utterance: its words, and its voice activity."""

from core.audio import ASR_RATE_HZ, Pcm, ms_to_samples
from engines.base import AsrItem, AsrModel, AsrResult, VadEngine
from pipeline.transcription.no_speech import NoSpeechFilter
from pipeline.transcription.stitching import stitch_results


def decode_whole(model: AsrModel, name: str, pcm: Pcm) -> AsrResult:
    """Decodes all of it, in windows if the model takes no longer audio."""
    window_ms = model.info.window_ms
    size = ms_to_samples(window_ms, ASR_RATE_HZ) if window_ms else max(1, len(pcm))
    windows = [pcm[at : at + size] for at in range(0, max(1, len(pcm)), size)]
    names = [name, *(f"{name} {number}" for number in range(2, len(windows) + 1))]
    items = [AsrItem(name, pcm, is_final=True) for name, pcm in zip(names, windows, strict=True)]
    results = [model.decode([item])[0] for item in items]
    return stitch_results([(result, len(w)) for result, w in zip(results, windows, strict=True)])


def speech_evidence(vad: VadEngine, pcm: Pcm) -> NoSpeechFilter:
    """Returns the evidence of speech in it, as for an uploaded recording."""
    one, evidence = vad.open(), NoSpeechFilter()
    size = one.frame_samples
    for at in range(0, len(pcm) - size + 1, size):
        evidence.push(one.push(pcm[at : at + size]), size)
    return evidence
