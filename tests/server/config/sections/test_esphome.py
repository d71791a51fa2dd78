"""Section `[esphome]`."""

from pipeline.shared.settings import SessionSettings, TurnDetection
from server.config.sections.esphome import EspHomeConfig


def test_satellites_end_a_turn_by_its_words_unless_the_operator_wants_a_fixed_wait() -> None:
    usual = SessionSettings(turn_detection=TurnDetection(silence_ms=700), wake_word="jarvis")
    found = EspHomeConfig().as_settings(lambda: usual).initial_settings()
    assert found.turn_detection == TurnDetection(kind="semantic_vad", silence_ms=700)
    assert found.wake_word == ""  # the satellite has detected its own
    fixed = EspHomeConfig(detection="server_vad").as_settings(lambda: usual).initial_settings()
    assert fixed.turn_detection == usual.turn_detection
