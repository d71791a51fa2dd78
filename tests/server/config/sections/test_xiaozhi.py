"""The turn detection of xiaozhi boards, as the configuration sets it."""

from pipeline.shared.settings import SessionSettings, TurnDetection
from server.config.sections.xiaozhi import XiaozhiConfig


def test_boards_have_semantic_turn_detection_whatever_other_clients_have() -> None:
    usual = SessionSettings(wake_word="okay_nabu", turn_detection=TurnDetection(threshold=0.7))
    fresh = XiaozhiConfig().as_settings("", lambda: usual).initial_settings()
    assert fresh.turn_detection == TurnDetection(kind="semantic_vad", threshold=0.7)
    assert fresh.wake_word == ""


def test_boards_may_have_a_fixed_silence() -> None:
    usual = SessionSettings(turn_detection=TurnDetection(kind="semantic_vad", silence_ms=300))
    fresh = XiaozhiConfig(detection="server_vad").as_settings("", lambda: usual).initial_settings()
    assert fresh.turn_detection == TurnDetection(kind="server_vad", silence_ms=300)
