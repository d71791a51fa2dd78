"""GPT-Live's fragments of transcripts, and the events about a response that went wrong."""

from hypothesis import given
from hypothesis import strategies as st

from core.conversation.events import (
    ErrorEvent,
    HypothesisChanged,
    ResponseDone,
    SpeechStarted,
    TranscriptionCompleted,
    TranscriptionFailed,
)
from signaling.live.configuration import configured
from signaling.live.schema import LiveSession
from signaling.live.server_events import EventEncoder, InputTranscriptDelta
from signaling.live.translator import LiveTranslator
from signaling.realtime.session.settings import SessionConfiguration
from tests.signaling.live.clients import STOCK


def translator() -> LiveTranslator:
    return LiveTranslator(configured(SessionConfiguration(), LiveSession("gpt-live-1")))


def heard(live: LiveTranslator, item_id: str, stable: list[str], final: str) -> str:
    """Tells one utterance; returns what a client has when it appends the fragments."""
    live.translated(SpeechStarted(item_id, 0), 100)
    events = [
        event
        for words in stable
        for event in live.translated(HypothesisChanged(item_id, words, "", 0), 200)
    ]
    events += live.translated(TranscriptionCompleted(item_id, final, 1.0, "en"), 300)
    spans = [e for e in events if isinstance(e, InputTranscriptDelta)]
    assert spans == events
    assert all(span.start_ms <= span.end_ms for span in spans)
    return "".join(span.delta for span in spans)


def test_fragments_are_the_words_and_a_later_utterance_stands_apart() -> None:
    live = translator()
    assert heard(live, "a", ["turn on", "turn on the"], "Turn on the light.") == (
        "turn on the light."
    )
    assert heard(live, "b", [], "Thanks.") == " Thanks."
    assert heard(live, "c", ["five"], "") == " five", "noise: what was told stays"


def test_changed_words_are_told_from_the_first_difference() -> None:
    assert heard(translator(), "a", ["turn of"], "turn off the light") == "turn off the light"
    assert heard(translator(), "a", ["two lamps"], "ten lamps") == "two lamps en lamps"


@given(st.text(max_size=30), st.lists(st.integers(0, 30), max_size=5))
def test_growing_words_add_up_to_the_transcript(final: str, cuts: list[int]) -> None:
    stable = [final[:cut] for cut in sorted(cuts)]
    assert heard(translator(), "a", stable, final).strip() == final.strip()


def test_failures_are_errors_in_the_official_clients_shape() -> None:
    encoder, live = EventEncoder(), translator()
    for event in (
        ErrorEvent("asr_lost", "It failed."),
        TranscriptionFailed("a", "asr_lost", "It failed."),
        ResponseDone("r", "failed", "audio", error_code="llm_lost", error_message="It failed."),
    ):
        [told] = live.translated(event, 5)
        text = encoder.text(told)
        assert STOCK.validate_json(text).error.type == "server_error"
