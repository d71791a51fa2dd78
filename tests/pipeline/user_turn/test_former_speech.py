"""Speech shortly after a final utterance is decoded together with it, in virtual time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest

from core.audio import ASR_RATE_HZ, ms_to_samples
from core.conversation.events import HypothesisChanged, SessionEvent, TranscriptionCompleted
from engines.base import AsrItem, AsrResult
from pipeline.session.session import Session
from pipeline.shared.settings import SessionSettings, TurnDetection
from pipeline.transcription.former_speech import MAX_TOGETHER_MS
from pipeline.user_turn.continuation import FORMER_MS
from serving.asr.scheduling import DecodePriority
from tests.pipeline.fakes import LevelAsr, World, speak
from tests.pipeline.scenes import ONE, SILENCE, TWO, of, run_session

pytestmark = pytest.mark.many

THREE = 3000
PAUSE = (SILENCE, 700)
"Longer than the wait of 450 ms: the first utterance is final."
TRANSCRIBING = SessionSettings(
    turn_detection=TurnDetection(silence_ms=450, create_response=False), answers=False
)


class ContinuingAsr(LevelAsr):
    """A recogniser that continues from known words. It is unsure of what it hears after them, or
    hears nothing, if a test says so."""

    def __init__(self, supports: tuple[str, ...] = ("former_words",)) -> None:
        super().__init__(window_ms=29_500, supports=supports)
        self.info = replace(self.info, tells_noise=True)
        self.is_unsure = self.is_deaf = False

    async def decode(self, item: AsrItem, priority: DecodePriority) -> AsrResult:
        result = await super().decode(item, priority)
        if not (former := item.options.former_words.split()):
            return result
        assert result.text.split()[: len(former)] == former
        words = [] if self.is_deaf else result.text.split()[len(former) :]
        return replace(result, text=" ".join(words), is_unsure=self.is_unsure)


@dataclass
class Heard:
    """Transcripts of a session, and what its recogniser was asked."""

    events: list[SessionEvent]
    asr: LevelAsr

    @property
    def transcripts(self) -> list[str]:
        return [event.transcript for event in of(TranscriptionCompleted, self.events)]

    @property
    def former_words(self) -> list[str]:
        """Former words of the last decode of each utterance."""
        last = {item.utterance: item.options.former_words for _, _, item in self.asr.asked}
        return list(last.values())


def hear(
    *script: tuple[int, int],
    asr: LevelAsr | None = None,
    settings: SessionSettings = TRANSCRIBING,
) -> Heard:
    asr = asr or ContinuingAsr()

    async def scenario(session: Session) -> None:
        await speak(session, (SILENCE, 200), *script, (SILENCE, 1500))

    return Heard(run_session(World(asr=asr), scenario, settings), asr)


def test_speech_soon_after_an_utterance_is_decoded_with_it() -> None:
    heard = hear((ONE, 600), PAUSE, (TWO, 600))
    assert heard.transcripts == ["one", "two"]
    assert heard.former_words == ["", "one"]


def test_all_utterances_of_a_sentence_are_decoded_together() -> None:
    heard = hear((ONE, 600), PAUSE, (TWO, 600), PAUSE, (THREE, 600))
    assert heard.transcripts == ["one", "two", "three"]
    assert heard.former_words == ["", "one", "one two"]


def test_partials_have_only_the_new_words() -> None:
    heard = hear((ONE, 600), PAUSE, (TWO, 1500))
    (_, second) = of(TranscriptionCompleted, heard.events)
    partials = [
        event for event in of(HypothesisChanged, heard.events) if event.item_id == second.item_id
    ]
    assert {event.stable + event.unstable for event in partials} == {"two"}


@pytest.mark.parametrize(
    "script",
    [
        ((ONE, 600), (SILENCE, FORMER_MS + 1000), (TWO, 600)),
        ((ONE, 600), PAUSE, (TWO, MAX_TOGETHER_MS)),
    ],
    ids=["long_pause", "long_speech"],
)
def test_speech_stands_alone(script: Sequence[tuple[int, int]]) -> None:
    heard = hear(*script)
    assert heard.transcripts == ["one", "two"]
    assert heard.former_words == ["", ""]


def test_former_speech_is_limited() -> None:
    """The oldest utterances are left out, whole ones, as their words belong to their sound."""
    heard = hear((ONE, 3000), PAUSE, (TWO, 3000), PAUSE, (THREE, 2000))
    assert heard.former_words == ["", "one", "two"]
    longest = max(len(item.pcm) for _, _, item in heard.asr.asked)
    assert longest <= ms_to_samples(MAX_TOGETHER_MS, ASR_RATE_HZ)


@pytest.mark.parametrize(
    ("supports", "settings"),
    [
        ((), TRANSCRIBING),
        (("former_words", "prefix"), replace(TRANSCRIBING, prefix="<|startoftranscript|>")),
        (("former_words", "token_logprobs"), replace(TRANSCRIBING, logprobs=True)),
    ],
    ids=["recogniser_cannot", "prefix", "logprobs"],
)
def test_former_speech_is_not_used(supports: tuple[str, ...], settings: SessionSettings) -> None:
    heard = hear((ONE, 600), PAUSE, (TWO, 600), asr=ContinuingAsr(supports), settings=settings)
    assert heard.transcripts == ["one", "two"]
    assert heard.former_words == ["", ""]


def test_a_sound_that_is_hardly_a_voice_is_decoded_alone() -> None:
    heard = hear((ONE, 600), PAUSE, (TWO, 160))
    assert heard.transcripts == ["one", "two"]
    assert heard.former_words == ["", ""]


@pytest.mark.parametrize("doubt", ["is_unsure", "is_deaf"])
def test_doubtful_words_are_decoded_alone(doubt: str) -> None:
    asr = ContinuingAsr()
    setattr(asr, doubt, True)
    heard = hear((ONE, 600), PAUSE, (TWO, 600), asr=asr)
    assert heard.transcripts == ["one", "two"]
    assert heard.former_words == ["", ""]
    assert "one" in [item.options.former_words for _, _, item in asr.asked]
