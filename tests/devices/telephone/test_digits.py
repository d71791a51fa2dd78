"""When the keys that a caller presses become a message."""

from devices.telephone.digits import MAX_DIGITS, PAUSE_S, DigitCollector


def test_keys_wait_for_a_pause() -> None:
    digits = DigitCollector()
    assert digits.tick(0.0) == ""
    assert digits.press("1", 0.0) == ""
    assert digits.press("*", 1.5) == ""
    assert digits.tick(1.5 + PAUSE_S - 0.01) == ""
    assert digits.tick(1.5 + PAUSE_S) == "pressed 1 *"
    assert digits.tick(100.0) == ""


def test_the_hash_key_ends_the_message_at_once() -> None:
    digits = DigitCollector()
    digits.press("1", 0.0)
    digits.press("2", 0.5)
    assert digits.press("#", 1.0) == "pressed 1 2 #"
    assert digits.due_at is None
    assert digits.press("#", 1.0) == "pressed #"


def test_a_message_has_an_end() -> None:
    digits = DigitCollector()
    texts = [digits.press("5", 0.0) for _ in range(MAX_DIGITS + 1)]
    assert [len(text) for text in texts if text] == [len("pressed") + 2 * MAX_DIGITS]
    assert digits.due_at is not None
