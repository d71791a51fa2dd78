"""Recognition of speakers that hears what a test says."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from core.access.named_key import NamedKey
from core.audio import ASR_RATE_HZ, Pcm
from core.conversation.speakers import GE2E_THRESHOLDS, SpeakerMatch
from core.errors import EngineCrashed
from engines.base.speaker import SpeakerResult, VoiceQuality
from serving.speaker.model import SpeakerPriority
from serving.speaker.recognition import SpeakerRecognition

ANNA = SpeakerMatch("spk_1", "Anna", 0.9)
BEN = SpeakerMatch("spk_2", "Ben", 0.8)


class ScriptedVoices(SpeakerRecognition):
    """Hears `match` in every utterance, after `delay_s`."""

    def __init__(
        self, match: SpeakerMatch | None = ANNA, *, people: int = 2, delay_s: float = 0.02
    ) -> None:
        self.match, self.people, self.delay_s = match, people, delay_s
        self.heard: list[float] = []
        "Length of each sound that was compared, in seconds."
        self.asked_thresholds: list[float] = []
        self.confirmed: list[float] = []
        "Length of each sound that was compared for a guard, in seconds."
        self.followed: list[tuple[str, float]] = []
        "Person and length of each utterance that was offered to the person's voice, in seconds."
        self.held: list[bool] = []
        self.is_broken = self.is_broken_at_end = False
        self.vector = b"\0" * 4

    def count_people(self, key: NamedKey | None) -> int:
        return self.people

    @contextmanager
    def hold(self, key: NamedKey | None) -> Iterator[None]:
        self.held.append(True)
        yield
        self.held.append(False)

    async def listen(self, pcm: Pcm, priority: SpeakerPriority) -> tuple[str, SpeakerResult]:
        assert priority is SpeakerPriority.ENROLMENT
        return "scripted", SpeakerResult(self.vector, VoiceQuality(1000, -20.0, 30.0))

    async def confirm(self, pcm: Pcm, key: NamedKey | None) -> SpeakerMatch | None:
        self.confirmed.append(len(pcm) / ASR_RATE_HZ)
        await asyncio.sleep(self.delay_s)
        if self.is_broken:
            raise EngineCrashed("speaker", "ge2e", "broken on purpose")
        return self.match

    async def follow(self, pcm: Pcm, key: NamedKey | None, speaker_id: str) -> None:
        self.followed.append((speaker_id, len(pcm) / ASR_RATE_HZ))
        if self.is_broken_at_end:
            raise EngineCrashed("speaker", "ge2e", "broken on purpose")

    async def compare(
        self,
        pcm: Pcm,
        key: NamedKey | None,
        priority: SpeakerPriority,
        threshold: float | None = None,
    ) -> tuple[SpeakerMatch | None, SpeakerResult]:
        assert priority is SpeakerPriority.TURN
        self.heard.append(len(pcm) / ASR_RATE_HZ)
        self.asked_thresholds.append(GE2E_THRESHOLDS.known if threshold is None else threshold)
        await asyncio.sleep(self.delay_s)
        if self.is_broken:
            raise EngineCrashed("speaker", "ge2e", "broken on purpose")
        return self.match, SpeakerResult(self.vector, VoiceQuality(1000, -20.0, 30.0))
