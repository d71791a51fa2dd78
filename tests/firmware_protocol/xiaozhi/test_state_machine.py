from collections.abc import Sequence

import pytest

from firmware_protocol.xiaozhi.messages import (
    AbortMessage,
    DeviceFeatures,
    DeviceHello,
    IgnoredMessage,
    ListenDetect,
    ListenMode,
    ListenStart,
    ListenStop,
    LlmMessage,
    PingMessage,
    PongMessage,
    ServerHello,
    SttMessage,
    TtsMessage,
    TurnLatencies,
)
from firmware_protocol.xiaozhi.state_machine import (
    BeginInput,
    CancelResponse,
    CloseConnection,
    CommitInput,
    CreateTextResponse,
    Dialogue,
    DialogueAction,
    DialogueSettings,
    ReportWakeWord,
    SendMessage,
)


def begun(mode: ListenMode | None = "auto", **features: bool) -> Dialogue:
    """Returns a machine at 0 s, which listens if a mode is given."""
    dialogue = Dialogue("s-1", 0.0)
    (hello,) = dialogue.receive(DeviceHello(features=DeviceFeatures(**features)), 0.0)
    assert isinstance(hello, SendMessage)
    assert isinstance(hello.message, ServerHello)
    if mode:
        assert dialogue.receive(ListenStart(mode=mode), 0.0) == [BeginInput(mode)]
    return dialogue


def told(actions: Sequence[DialogueAction]) -> list[str]:
    """Returns the sent messages in short form, without emotions."""
    out = []
    for action in actions:
        if isinstance(action, SendMessage):
            match action.message:
                case LlmMessage():
                    continue
                case TtsMessage(state=state):
                    out.append(f"tts {state}")
                case other:
                    out.append(type(other).__name__.removesuffix("Message").lower())
        else:
            out.append(type(action).__name__)
    return out


def speak(dialogue: Dialogue, now: float) -> None:
    dialogue.speech_started(now)
    dialogue.receive(ListenStop(), now + 1)
    dialogue.speech_ended(now + 1)
    assert told(dialogue.final_transcript("one", now + 1, is_answered=True)) == ["stt", "tts start"]


def test_the_messages_of_a_turn() -> None:
    dialogue = begun()
    doing = [dialogue.activity]
    dialogue.speech_started(1)
    doing.append(dialogue.activity)
    dialogue.speech_ended(2)
    doing.append(dialogue.activity)
    assert dialogue.final_transcript("one", 2, is_answered=True) == [
        SendMessage(SttMessage("one")),
        SendMessage(TtsMessage("start")),
        SendMessage(LlmMessage("happy")),
    ]
    doing.append(dialogue.activity)
    assert dialogue.clause("Yes.") == [SendMessage(TtsMessage("sentence_start", text="Yes."))]
    dialogue.pacer.sent(2.1)
    assert dialogue.tick(2.2, is_answering=True) == []
    assert dialogue.tick(2.25, is_answering=False) == []  # it still plays
    assert dialogue.tick(2.27, is_answering=False) == [
        SendMessage(TtsMessage("stop")),
        SendMessage(LlmMessage("neutral")),
    ]
    doing.append(dialogue.activity)
    assert doing == ["listening", "listening", "thinking", "speaking", "idle"]
    assert dialogue.receive(ListenStart(mode="auto"), 2.5) == [BeginInput("auto")]


def test_our_hello_is_sent_at_once_and_complete() -> None:
    dialogue = Dialogue("s-9", 0.0)
    (sent,) = dialogue.receive(DeviceHello(), 0.1)
    assert isinstance(sent, SendMessage)
    hello = sent.message
    assert isinstance(hello, ServerHello)
    assert (hello.transport, hello.session_id) == ("websocket", "s-9")
    assert hello.audio_params.sample_rate == 24_000  # type: ignore[union-attr]


def test_audio_before_listen_is_ignored() -> None:
    dialogue = begun(mode=None)
    assert not dialogue.takes_audio
    assert dialogue.receive(ListenDetect(text="hi esp"), 0.1) == [ReportWakeWord("hi esp")]
    assert dialogue.receive(ListenStart(mode="auto"), 0.2) == [BeginInput("auto")]
    assert dialogue.takes_audio


def test_a_text_while_listening_is_a_typed_message_and_is_answered() -> None:
    dialogue = begun("auto")
    text = "turn on the light"
    assert dialogue.receive(ListenDetect(text=f" {text}\n"), 1) == [
        SendMessage(SttMessage(text)),
        CreateTextResponse(text),
    ]
    assert dialogue.activity == "thinking"
    assert told(dialogue.receive(ListenDetect(text="no, off"), 2)) == [
        "CancelResponse",
        "stt",
        "CreateTextResponse",
    ]
    assert dialogue.receive(ListenDetect(text="  "), 3) == []


def test_a_text_without_listening_is_answered_after_a_moment() -> None:
    dialogue = begun(mode=None)
    assert dialogue.receive(ListenDetect(text="hi"), 1.0) == [ReportWakeWord("hi")]
    assert dialogue.tick(1.4, is_answering=False) == []
    assert dialogue.tick(1.5, is_answering=False) == [
        SendMessage(SttMessage("hi")),
        CreateTextResponse("hi"),
    ]
    assert dialogue.tick(1.6, is_answering=True) == []


def test_a_wake_word_before_listening_is_not_answered() -> None:
    dialogue = begun(mode=None)
    dialogue.receive(ListenDetect(text="hi esp"), 1.0)
    dialogue.receive(ListenStart(mode="auto"), 1.1)
    assert dialogue.tick(9, is_answering=False) == []


@pytest.mark.parametrize("is_late", [True, False])
def test_a_device_that_lost_its_wake_word_is_left_once_it_listens(is_late: bool) -> None:
    """Before, it would report an error because it could not send `listen start`."""
    dialogue = begun(mode=None)
    dialogue.receive(ListenDetect(text="hi esp"), 1.0)
    assert (dialogue.is_waiting, dialogue.takes_audio) == (True, False)
    if is_late:
        dialogue.receive(ListenStart(mode="auto"), 1.1)
        assert (dialogue.is_waiting, dialogue.takes_audio) == (False, True)
    dialogue.wake_word_lost(1.2)
    assert (dialogue.is_waiting, dialogue.takes_audio) == (False, False)
    if not is_late:
        assert dialogue.tick(1.3, is_answering=False) == []
        dialogue.receive(ListenStart(mode="auto"), 1.3)
    left = [CloseConnection("another_device_answers")]
    assert dialogue.tick(1.3, is_answering=False) == left


def test_a_device_that_lost_its_wake_word_and_never_listens_is_left() -> None:
    dialogue = begun(mode=None)
    dialogue.receive(ListenDetect(text="hi esp"), 1.0)
    dialogue.wake_word_lost(1.2)
    assert dialogue.tick(1.6, is_answering=False) == []  # it was no typed text
    left = [CloseConnection("another_device_answers")]
    assert dialogue.tick(1.7, is_answering=False) == left


def test_the_length_of_a_typed_text_is_limited() -> None:
    dialogue = begun("auto")
    [_, asked] = dialogue.receive(ListenDetect(text="x" * 5000), 1)
    assert asked == CreateTextResponse("x" * 1000)


@pytest.mark.parametrize(
    ("mode", "hears"), [("auto", False), ("realtime", True), ("manual", False)]
)
def test_audio_during_speech_is_used_only_from_devices_with_echo_cancellation(
    mode: ListenMode, hears: bool
) -> None:
    dialogue = begun(mode)
    dialogue.answer_begun(1)
    assert dialogue.takes_audio is hears


@pytest.mark.parametrize(
    ("mode", "after"), [("auto", "idle"), ("realtime", "listening"), ("manual", "idle")]
)
def test_the_state_after_an_answer_depends_on_the_mode(mode: ListenMode, after: str) -> None:
    dialogue = begun(mode)
    speak(dialogue, 1)
    assert told(dialogue.tick(9, is_answering=False)) == ["tts stop"]
    assert dialogue.activity == after


@pytest.mark.parametrize("mode", ["auto", "realtime", "manual"])
@pytest.mark.parametrize("is_speaking", [True, False])
def test_abort_is_always_answered_with_tts_stop(mode: ListenMode, is_speaking: bool) -> None:
    dialogue = begun(mode)
    if is_speaking:
        dialogue.answer_begun(1)
    abort = AbortMessage(reason="wake_word_detected")
    assert told(dialogue.receive(abort, 2)) == ["CancelResponse", "tts stop"]
    assert dialogue.receive(ListenStart(mode=mode), 2) == [BeginInput(mode)]
    assert dialogue.interrupted() == []  # what the cancelled answer brings
    assert dialogue.tick(3, is_answering=False) == []
    assert dialogue.activity == "listening"


def test_speech_detected_by_the_server_interrupts() -> None:
    dialogue = begun("realtime")
    speak(dialogue, 1)
    dialogue.speech_started(3)
    assert told(dialogue.interrupted()) == ["tts stop"]
    assert (dialogue.activity, dialogue.takes_audio) == ("listening", True)
    assert dialogue.interrupted() == []


def test_push_to_talk_ends_a_turn_with_the_button() -> None:
    dialogue = begun("manual")
    assert dialogue.receive(ListenStop(), 1) == [CommitInput(requests_response=True)]
    assert not dialogue.takes_audio
    assert dialogue.receive(ListenStop(), 1.1) == []
    assert told(dialogue.final_transcript("one", 2, is_answered=True)) == ["stt", "tts start"]


@pytest.mark.parametrize("mode", ["auto", "realtime"])
def test_the_button_does_not_end_turns_with_server_turn_detection(mode: ListenMode) -> None:
    dialogue = begun(mode)
    assert dialogue.receive(ListenStop(), 1) == []


def test_noise_gets_no_answer() -> None:
    dialogue = begun()
    dialogue.speech_started(1)
    dialogue.speech_ended(2)
    assert dialogue.final_transcript("", 2, is_answered=True) == []
    assert dialogue.activity == "listening"


def test_speaking_ends_without_an_answer() -> None:
    """The answer failed, or there is no voice for its language."""
    dialogue = begun()
    speak(dialogue, 1)
    assert dialogue.tick(2.1, is_answering=False) == []
    assert told(dialogue.tick(2.3, is_answering=False)) == ["tts stop"]


def test_consecutive_answers_share_one_speaking_state() -> None:
    dialogue = begun()
    speak(dialogue, 1)
    dialogue.pacer.sent(2.2)
    assert dialogue.tick(9, is_answering=True) == []
    assert dialogue.answer_begun(9) == []
    dialogue.pacer.sent(9.1)
    assert told(dialogue.tick(9.3, is_answering=False)) == ["tts stop"]


def test_an_announcement_may_start_speaking() -> None:
    dialogue = begun(mode=None)
    assert told(dialogue.answer_begun(100)) == ["tts start"]
    assert dialogue.activity == "speaking"


def test_nothing_is_sent_before_hello() -> None:
    dialogue = Dialogue("s", 0)
    assert dialogue.answer_begun(1) == []
    assert dialogue.clause("x") == []


def test_a_listen_message_that_crosses_tts_start_is_ignored() -> None:
    dialogue = begun()
    dialogue.answer_begun(5)
    assert dialogue.receive(ListenStart(mode="auto"), 5.01) == []
    assert dialogue.activity == "speaking"


@pytest.mark.parametrize("mode", ["auto", "realtime"])
def test_a_user_who_continues_to_speak_keeps_the_microphone(mode: ListenMode) -> None:
    """`tts start` would close the microphone in the middle of a word."""
    dialogue = begun(mode)
    dialogue.speech_started(1)
    dialogue.speech_ended(2)
    dialogue.speech_started(2.2)
    assert told(dialogue.final_transcript("one", 2.3, is_answered=True)) == ["stt"]
    assert dialogue.takes_audio
    dialogue.speech_ended(3)
    assert told(dialogue.final_transcript("one two", 3.1, is_answered=True)) == ["stt", "tts start"]


def test_speech_without_an_answer_leaves_the_microphone_open() -> None:
    dialogue = begun()
    dialogue.speech_started(1)
    dialogue.speech_ended(2)
    assert told(dialogue.final_transcript("one", 2, is_answered=False)) == ["stt"]
    assert dialogue.takes_audio


def test_pressing_the_button_again_cancels_the_answer() -> None:
    dialogue = begun("manual")
    dialogue.receive(ListenStop(), 1)
    dialogue.speech_ended(1)
    assert told(dialogue.receive(ListenStart(mode="manual"), 1.5)) == [
        "CancelResponse",
        "BeginInput",
    ]
    assert told(dialogue.final_transcript("one", 1.6, is_answered=True)) == ["stt"]
    assert dialogue.takes_audio


def test_the_length_of_a_turn_is_limited() -> None:
    dialogue = begun()
    dialogue.speech_started(1)
    assert dialogue.tick(20.9, is_answering=False) == []
    assert dialogue.tick(21.1, is_answering=False) == [CommitInput(requests_response=False)]
    assert dialogue.tick(21.2, is_answering=False) == []  # once
    held = begun("manual")
    held.speech_started(1)
    assert held.tick(60, is_answering=False) == []


@pytest.mark.parametrize(
    ("mode", "until_s", "reason"),
    [("auto", 20, "silence"), ("realtime", 20, "silence"), ("manual", 300, "idle"),
     (None, 300, "idle")],
)  # fmt: skip
def test_silence_ends_the_conversation(
    mode: ListenMode | None, until_s: float, reason: str
) -> None:
    dialogue = begun(mode)
    assert dialogue.tick(until_s - 0.1, is_answering=False) == []
    assert dialogue.tick(until_s + 0.1, is_answering=False) == [CloseConnection(reason)]  # type: ignore[arg-type]


def test_the_silence_timeout_starts_after_the_last_speech() -> None:
    dialogue = begun()
    dialogue.speech_started(15)
    dialogue.speech_discarded(16)
    assert dialogue.tick(35, is_answering=False) == []
    dialogue.tick(35.5, is_answering=True)
    assert dialogue.tick(55, is_answering=False) == []
    assert dialogue.tick(56, is_answering=False) == [CloseConnection("silence")]


def test_a_client_without_a_hello_is_closed() -> None:
    dialogue = Dialogue("s", 0, DialogueSettings(hello_timeout_s=10))
    assert dialogue.tick(9.9, is_answering=False) == []
    assert dialogue.tick(10.1, is_answering=False) == [CloseConnection("hello_expected")]


def test_extensions_are_sent_only_to_devices_that_announced_them() -> None:
    timing = TurnLatencies(response_latency_ms=500)
    stock, ours = begun(), begun(partial=True, timing=True)
    for dialogue in (stock, ours):
        dialogue.answer_begun(1)
        dialogue.set_latencies(timing)
    assert (stock.partial_transcript("turn"), ours.partial_transcript("turn")) == (
        [],
        [SendMessage(SttMessage("turn", partial=True))],
    )
    assert ours.partial_transcript("") == []
    assert stock.tick(9, is_answering=False)[0] == SendMessage(TtsMessage("stop"))
    assert ours.tick(9, is_answering=False)[0] == SendMessage(TtsMessage("stop", timing=timing))
    ours.answer_begun(10)
    assert ours.tick(19, is_answering=False)[0] == SendMessage(
        TtsMessage("stop")
    )  # not the former turn's


def test_minor_messages_have_their_effects() -> None:
    dialogue = begun()
    assert dialogue.receive(PingMessage(), 1) == [SendMessage(PongMessage())]
    assert dialogue.receive(IgnoredMessage("iot"), 1) == []
    assert isinstance(dialogue.receive(AbortMessage(), 1)[0], CancelResponse)
