"""The last turns of sessions are kept for MQTT, and nothing else of their events."""

from core.conversation.events import (
    ItemDone,
    OutputItemDone,
    SessionEvent,
    SpeakerRecognised,
    TranscriptionCompleted,
    TurnTimeline,
)
from core.conversation.items import MessageItem, TextPart
from core.conversation.speakers import SpeakerMatch
from core.ports import DeviceLocation
from devices.mqtt.last_turns import LastTurns, LastWords
from tests.pipeline.fakes import ManualClock

KITCHEN = DeviceLocation(area="Kitchen", device_id="dev_1")
HEARD = TranscriptionCompleted("item_1", "lights on", audio_s=1.0, language="en")
ANSWER = MessageItem("item_2", "assistant", (TextPart("Done."),))
SAID = OutputItemDone("resp_1", 0, ANSWER, None, has_audio=True)
BEN = SpeakerRecognised("item_1", SpeakerMatch("spk_1", "Ben", 0.9))
TIMELINE = TurnTimeline("turn_1", "item_1", "resp_1", "answered", (), 412.0)


def turns(*events: SessionEvent, keeps_words: bool = True, keeps_people: bool = True) -> LastTurns:
    kept = LastTurns(ManualClock(), keeps_words=keeps_words, keeps_people=keeps_people)
    for event in events:
        kept.take(KITCHEN, event)
    return kept


def test_words_are_told_once_with_their_speaker() -> None:
    kept = turns(BEN, HEARD)
    assert kept.take_words() == {"dev_1": LastWords("lights on", "", "Ben")}
    kept.take(KITCHEN, SAID)
    assert kept.take_words() == {"dev_1": LastWords("lights on", "Done.", "Ben")}
    assert kept.take_words() == {}


def test_a_speaker_is_not_taken_for_that_of_the_next_utterance() -> None:
    kept = turns(BEN, TranscriptionCompleted("item_9", "and off", audio_s=1.0, language="en"))
    assert kept.take_words()["dev_1"].person == ""


def test_nothing_private_is_kept_unless_it_is_allowed() -> None:
    kept = turns(BEN, HEARD, SAID, TIMELINE, keeps_words=False, keeps_people=False)
    assert (kept.take_words(), kept.people, kept.latency_ms) == ({}, {}, 412.0)
    words_only = turns(BEN, HEARD, keeps_people=False)
    assert words_only.take_words()["dev_1"].person == ""


def test_a_person_is_known_by_time_and_place() -> None:
    kept = turns(BEN)
    assert kept.people["spk_1"].place == KITCHEN
    assert kept.people["spk_1"].at == ManualClock().wall()
    kept.forget_people(frozenset())
    assert kept.people == {}


def test_written_words_are_not_taken_for_spoken_ones() -> None:
    kept = turns(BEN, HEARD, SAID)
    written = MessageItem("item_3", "user", (TextPart("what time is it"),))
    kept.take(KITCHEN, ItemDone(written, "item_2"))
    assert kept.take_words() == {"dev_1": LastWords("what time is it")}


def test_a_guest_is_nobody() -> None:
    assert turns(SpeakerRecognised("item_1", None)).people == {}


def test_a_change_is_reported() -> None:
    kept = turns()
    changed = kept.changed()
    kept.take(KITCHEN, HEARD)
    assert changed.is_set()
    assert "lights" not in repr(kept.take_words())


def test_words_of_a_deleted_device_are_forgotten() -> None:
    kept = turns(HEARD)
    kept.forget_devices(frozenset())
    assert kept.take_words() == {}
