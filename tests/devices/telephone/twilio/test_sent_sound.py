"""Which sound counts as heard."""

import numpy as np

from devices.telephone.twilio.line import MAX_UNPLAYED_FRAMES, SentSound


def test_marks_say_what_was_played() -> None:
    sent, frames = SentSound(), [np.full(160, value, np.int16) for value in range(4)]
    numbers = [sent.add(frame) for frame in frames]
    sent.played(numbers[1])
    assert [frame[0] for frame in sent.take_back()] == [2, 3]
    assert sent.take_back() == []
    again = sent.add(frames[2])
    sent.played(numbers[3])  # its mark comes back because of the clear
    assert len(sent.take_back()) == 1
    sent.played(again)


def test_lost_marks_do_not_pile_up() -> None:
    sent = SentSound()
    for _ in range(MAX_UNPLAYED_FRAMES + 50):
        sent.add(np.zeros(160, np.int16))
    assert len(sent.take_back()) == MAX_UNPLAYED_FRAMES
