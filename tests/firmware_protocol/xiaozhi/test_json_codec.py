import json
from typing import Any

import msgspec
import pytest

from firmware_protocol.xiaozhi.errors import BadMessage
from firmware_protocol.xiaozhi.json_codec import (
    MAX_DEPTH,
    MAX_TEXT_BYTES,
    decode_device_message,
    decode_server_message,
    encode_message,
)
from firmware_protocol.xiaozhi.messages import (
    AbortMessage,
    DeviceHello,
    IgnoredMessage,
    ListenDetect,
    ListenStart,
    LlmMessage,
    McpAnswer,
    ServerHello,
    TtsMessage,
)
from tests.firmware_protocol.xiaozhi.vectors import Case, limits, messages, named, text_of

DECODERS = {"device": decode_device_message, "server": decode_server_message}
GOOD = [*messages("device", good=True), *messages("server", good=True)]
BAD = [*messages("device", good=False), *messages("server", good=False)]

UNKNOWN_FIELDS = ("unknown", "text_font", "session_id", "glyph_push")
"Not kept: news of other versions, and what we have no use for."


@pytest.mark.parametrize("case", GOOD, ids=named)
def test_messages_agree_with_the_vectors_and_are_written_back(case: Case) -> None:
    message, expected = DECODERS[case["sender"]](text_of(case)), case["expect"]
    assert isinstance(message, IgnoredMessage) == (
        case.get("ignored", False) and _is_news(expected)
    )
    if isinstance(message, IgnoredMessage):
        assert message.type == expected["type"]
        return
    written = json.loads(encode_message(message))
    assert written["type"] == expected["type"]
    for key, value in expected.items():
        assert written.get(key, value) == _known(value), key
        assert key in written or key in UNKNOWN_FIELDS, key
    assert DECODERS[case["sender"]](encode_message(message)) == message


def _is_news(message: dict[str, Any]) -> bool:
    """Whether a message has an effect on devices; the others are known too."""
    return message["type"] not in ("tts", "system")


def _known(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {key: _known(one) for key, one in value.items() if key not in UNKNOWN_FIELDS}


@pytest.mark.parametrize("case", BAD, ids=named)
def test_a_bad_message_is_refused_with_the_reason(case: Case) -> None:
    with pytest.raises(BadMessage) as caught:
        DECODERS[case["sender"]](text_of(case))
    assert (caught.value.reason, caught.value.code) == (case["error"], "bad_message")


@pytest.mark.parametrize("case", GOOD, ids=named)
def test_a_message_cut_at_any_byte_is_refused(case: Case) -> None:
    text = text_of(case)
    for cut in range(len(text.rstrip())):
        with pytest.raises(BadMessage):
            DECODERS[case["sender"]](text[:cut])


def test_the_limits_are_those_of_every_codec() -> None:
    assert (limits()["text_bytes"], limits()["json_depth"]) == (MAX_TEXT_BYTES, MAX_DEPTH)


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 100_000])
def test_deep_json_is_refused(depth: int) -> None:
    text = '{"type":"mcp","payload":' + "[" * depth + "]" * depth + "}"
    with pytest.raises(BadMessage) as caught:
        decode_device_message(text[:MAX_TEXT_BYTES])
    assert caught.value.reason == "bad_json"


def test_an_error_deep_within_a_message_is_short() -> None:
    with pytest.raises(BadMessage) as refused:
        decode_device_message('{"a":' + "[" * 600 + "1e999" + "]" * 600 + "}")
    assert len(str(refused.value)) < 300


def test_ten_megabytes_of_json_are_refused_unread() -> None:
    with pytest.raises(BadMessage, match="limit is 65535") as caught:
        decode_device_message('{"type":"' + "a" * 10_000_000 + '"}')
    assert caught.value.reason == "too_large"


def test_absent_fields_have_the_firmwares_defaults() -> None:
    hello = decode_device_message('{"type":"hello"}')
    assert isinstance(hello, DeviceHello)
    assert (hello.audio_params.sample_rate, hello.audio_params.frame_duration) == (16_000, 60)
    assert not hello.features.mcp
    assert decode_device_message('{"type":"abort"}') == AbortMessage()
    heard = decode_device_message('{"type":"listen","state":"detect"}')
    assert heard == ListenDetect()


@pytest.mark.parametrize("sample_rate", [44_100, 0, "16000"])
def test_a_hello_with_another_codec_is_refused(sample_rate: object) -> None:
    hello = {"type": "hello", "audio_params": {"sample_rate": sample_rate, "format": "opus"}}
    with pytest.raises(BadMessage, match="hello"):
        decode_device_message(json.dumps(hello))


def test_our_hello_names_its_transport_which_devices_require() -> None:
    written = json.loads(encode_message(ServerHello("websocket", "s-1")))
    assert written == {"type": "hello", "transport": "websocket", "session_id": "s-1"}
    with pytest.raises(TypeError):
        ServerHello()  # type: ignore[call-arg]


def test_our_messages_have_no_field_that_stock_firmware_displays() -> None:
    assert json.loads(encode_message(TtsMessage("stop"))) == {"type": "tts", "state": "stop"}
    assert json.loads(encode_message(LlmMessage("happy"))) == {"type": "llm", "emotion": "happy"}


def test_messages_are_frozen() -> None:
    message = ListenStart(mode="auto")
    with pytest.raises(AttributeError):
        message.mode = "manual"  # type: ignore[misc]
    assert msgspec.structs.replace(message, mode="manual").mode == "manual"
    assert McpAnswer(payload={"id": 1}) == McpAnswer(payload={"id": 1})
