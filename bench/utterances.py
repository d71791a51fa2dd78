"""What a live session would take out of a recording: the utterances that voice activity finds."""

from collections.abc import Iterator

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, silence
from engines.base import VadEngine
from media.framer import Framer
from pipeline.endpointer import Edge
from pipeline.hearing import Hearing
from pipeline.settings import TurnDetection
from pipeline.speech_evidence import SpeechEvidence

TAIL_MS = 2000
"Silence after a recording, so that its last utterance ends."


def evidence_of(vad: VadEngine, pcm: Pcm) -> SpeechEvidence:
    """That somebody speaks in it, as a recording is judged."""
    one, evidence = vad.open(), SpeechEvidence()
    size = one.frame_samples
    for at in range(0, len(pcm) - size + 1, size):
        evidence.push(one.push(pcm[at : at + size]), size)
    return evidence


def utterances(vad: VadEngine, pcm: Pcm) -> Iterator[Pcm]:
    """Each utterance with its padding and the silence that ended it, 16 kHz."""
    hearing = Hearing(vad.open())
    hearing.configure(TurnDetection(kind="semantic_vad"))
    framer = Framer(ASR_RATE_HZ)
    said: list[Pcm] = []
    for frame in framer.push(np.concatenate([pcm, silence(TAIL_MS, ASR_RATE_HZ)])):
        for heard in hearing.push(frame):
            if heard.in_speech:
                said.append(heard.pcm)
            if heard.edge is not None and heard.edge.edge is Edge.ENDED:
                yield np.concatenate(said)
                said = []
