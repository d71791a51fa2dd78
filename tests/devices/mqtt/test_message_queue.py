"""The broker gets the newest message of each topic, and removals."""

from devices.mqtt.message_queue import MAX_PASSING, OutgoingMessage, OutgoingMessages


def sent(outgoing: OutgoingMessages) -> list[OutgoingMessage]:
    """Returns everything that is due, as if it was sent."""
    messages = []
    while (message := outgoing.next()) is not None:
        messages.append(message)
        outgoing.confirm(message)
    return messages


def test_only_what_changed_is_sent_again() -> None:
    outgoing = OutgoingMessages()
    outgoing.want({"a": b"1", "b": b"1"})
    assert sent(outgoing) == [
        OutgoingMessage("a", b"1", is_retained=True),
        OutgoingMessage("b", b"1", is_retained=True),
    ]
    outgoing.want({"a": b"1", "b": b"2"})
    assert sent(outgoing) == [OutgoingMessage("b", b"2", is_retained=True)]


def test_the_newest_state_of_a_topic_wins() -> None:
    outgoing = OutgoingMessages()
    for state in (b"1", b"2", b"3"):
        outgoing.want({"a": state})
    assert sent(outgoing) == [OutgoingMessage("a", b"3", is_retained=True)]


def test_a_message_that_changed_while_it_was_sent_is_sent_again() -> None:
    outgoing = OutgoingMessages()
    outgoing.want({"a": b"1"})
    outgoing.pass_on("words", b"1")
    first = outgoing.next()
    assert first is not None
    outgoing.want({"a": b"2"})
    outgoing.confirm(first)
    assert [one.payload for one in sent(outgoing)] == [b"2", b"1"]
    outgoing.pass_on("words", b"2")
    passing = outgoing.next()
    assert passing is not None
    outgoing.pass_on("words", b"3")
    outgoing.confirm(passing)
    assert [one.payload for one in sent(outgoing)] == [b"3"]


def test_what_is_not_wanted_any_more_is_removed() -> None:
    outgoing = OutgoingMessages()
    outgoing.want({"a": b"1", "b": b"1"})
    sent(outgoing)
    outgoing.want({"a": b"1"})
    assert sent(outgoing) == [OutgoingMessage("b", b"", is_retained=True)]
    assert sent(outgoing) == []


def test_what_the_broker_holds_from_before_is_removed_once_the_devices_are_known() -> None:
    outgoing = OutgoingMessages()
    outgoing.note_held("gone")
    assert sent(outgoing) == []
    outgoing.want({"a": b"1"})
    assert [one.topic for one in sent(outgoing)] == ["a", "gone"]


def test_a_new_connection_gets_everything_but_old_news() -> None:
    outgoing = OutgoingMessages()
    outgoing.want({"a": b"1"})
    sent(outgoing)
    outgoing.pass_on("words", b"old")
    outgoing.begin()
    outgoing.drop_passing()
    assert sent(outgoing) == [OutgoingMessage("a", b"1", is_retained=True)]


def test_messages_that_pass_are_bounded() -> None:
    outgoing = OutgoingMessages()
    for number in range(MAX_PASSING + 2):
        outgoing.pass_on(f"t{number}", b"x")
    assert outgoing.dropped == 2
    assert sent(outgoing)[0].topic == "t2"
