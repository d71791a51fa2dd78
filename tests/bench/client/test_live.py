"""The events of GPT-Live as the log of a turn takes them."""

from bench.client.live import LiveTurnEvents
from bench.client.realtime import Json, ReceivedEvent
from bench.client.turn import TurnLog


def test_a_turn_of_gpt_live_is_logged_as_one_of_the_realtime_api() -> None:
    events, log = LiveTurnEvents(), TurnLog()

    def add(kind: str, at: float, **fields: str) -> None:
        event: Json = {"type": f"session.{kind}", **fields}
        for told in events.translated(event):
            log.add(ReceivedEvent(told, at))

    add("input_transcript.delta", 1.0, delta="what is")
    add("input_transcript.delta", 1.1, delta=" the time")
    add("usage.updated", 1.2)
    assert not log.is_over(has_sound_events=False), "no answer has come"
    add("output_transcript.delta", 1.5, delta="It is")
    add("output_transcript.delta", 1.9, delta=" noon.")
    assert (log.transcript, log.reply) == ("what is the time", "It is noon.")
    assert (log.first_words_at, log.first_reply_at, log.last_at) == (1.0, 1.5, 1.9)
    assert not log.is_over(has_sound_events=True), "sound may follow"
    assert log.is_over(has_sound_events=False)
    add("input_transcript.delta", 3.0, delta="thanks")
    add("output_transcript.delta", 3.5, delta="Bye.")
    assert log.reply == "Bye."
