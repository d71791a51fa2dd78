"""Every JSON message, both ways, as frozen values. Sheet: firmware 2.4.2, `docs/websocket.md`.

Fields that are not here are left out on the way in: firmware adds some with every version. A
server's `session_id` is not looked at by devices, and we send none but in our hello.
"""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

ListenMode = Literal["auto", "manual", "realtime"]
"""auto: we find the end of the turn, and the microphone rests while we speak; manual: a button
says it; realtime: the microphone is always open, and the device takes our echo out of it."""

Emotion = Literal[
    "neutral", "happy", "laughing", "funny", "sad", "angry", "crying", "loving", "embarrassed",
    "surprised", "shocked", "thinking", "winking", "cool", "relaxed", "delicious", "kissy",
    "confident", "sleepy", "silly", "confused",
]  # fmt: skip
"The faces that stock firmware knows."

Json = dict[str, Any]


class AudioParams(Struct, frozen=True):
    """What one side will send."""

    format: Literal["opus"] = "opus"
    sample_rate: Literal[8000, 12000, 16000, 24000, 48000] = 24000
    channels: Literal[1] = 1
    frame_duration: Literal[5, 10, 20, 40, 60, 80, 100, 120] = 60
    "ms per packet."


class DeviceFeatures(Struct, frozen=True, omit_defaults=True):
    """What a device can do. The last two are Earshot's own; stock firmware has neither."""

    mcp: bool = False
    aec: bool = False
    "It wants its echo taken out by the server."
    partial: bool = False
    "It shows words while they are spoken: `SttMessage.partial`."
    timing: bool = False
    "It shows where the time went: `TtsMessage.timing`."


class _Message(Struct, frozen=True, tag_field="type"):
    pass


class _FromDevice(_Message, frozen=True):
    session_id: str | UnsetType = UNSET
    "As our hello said it; empty or absent before."


# Device to server.


class DeviceHello(_FromDevice, frozen=True, tag="hello"):
    """The first message; ours is awaited for 10 s."""

    version: int = 1
    transport: str = "websocket"
    features: DeviceFeatures = DeviceFeatures()
    audio_params: AudioParams = AudioParams(sample_rate=16000)


class ListenStart(_FromDevice, frozen=True, tag="listen", kw_only=True):
    mode: ListenMode
    state: Literal["start"] = "start"


class ListenStop(_FromDevice, frozen=True, tag="listen"):
    """The button was let go; only in manual mode."""

    state: Literal["stop"] = "stop"


class ListenDetect(_FromDevice, frozen=True, tag="listen"):
    """A wake word that firmware heard, or a sentence that a person typed into a client on a
    computer: the same message."""

    text: str = ""
    state: Literal["detect"] = "detect"


class AbortMessage(_FromDevice, frozen=True, tag="abort"):
    """Stop speaking. A device that was stopped by its button speaks on until `TtsMessage` stop."""

    reason: str | UnsetType = UNSET


class PingMessage(_FromDevice, frozen=True, tag="ping"):
    """Not of stock firmware; the community's server answers it."""


class McpAnswer(_FromDevice, frozen=True, tag="mcp", kw_only=True):
    payload: Json


class IgnoredMessage(Struct, frozen=True):
    """Understood as a message, and nothing happens: `iot` of firmware before 1.8, `goodbye`
    (MQTT's: here the socket's end is the conversation's), or news."""

    type: str


DeviceMessage = (
    DeviceHello
    | ListenStart
    | ListenStop
    | ListenDetect
    | AbortMessage
    | PingMessage
    | McpAnswer
    | IgnoredMessage
)

# Server to device.


class ServerHello(_Message, frozen=True, tag="hello"):
    """Without `transport` a device crashes; with another one it waits on."""

    transport: Literal["websocket"]
    session_id: str | UnsetType = UNSET
    audio_params: AudioParams | UnsetType = UNSET
    "Of the sound that we send; absent: 24 kHz in packets of 60 ms."


class SttMessage(_Message, frozen=True, tag="stt"):
    """What the user said."""

    text: str
    partial: bool | UnsetType = UNSET
    "It is still being said. Only for who announced `partial`: others would show every one."


class LlmMessage(_Message, frozen=True, tag="llm"):
    emotion: str | UnsetType = UNSET
    text: str | UnsetType = UNSET


class TurnLatencies(Struct, frozen=True, omit_defaults=True):
    """ms from the end of the user's speech; absent: it did not happen."""

    response_latency_ms: float | None = None
    transcript_ms: float | None = None
    first_text_ms: float | None = None
    first_audio_ms: float | None = None


class TtsMessage(_Message, frozen=True, tag="tts"):
    """Sound is taken between start and stop only."""

    state: Literal["start", "sentence_start", "sentence_end", "stop"]
    text: str | UnsetType = UNSET
    timing: TurnLatencies | UnsetType = UNSET
    "With stop, for who announced `timing`."


class McpRequest(_Message, frozen=True, tag="mcp"):
    payload: Json


class SystemMessage(_Message, frozen=True, tag="system"):
    command: str
    "`reboot` is the only one."


class AlertMessage(_Message, frozen=True, tag="alert"):
    """All three are needed by the device."""

    status: str
    message: str
    emotion: str


class CustomMessage(_Message, frozen=True, tag="custom"):
    """For builds with CONFIG_RECEIVE_CUSTOM_MESSAGE."""

    payload: Json | list[Any]


class PongMessage(_Message, frozen=True, tag="pong"):
    pass


ServerMessage = (
    ServerHello
    | SttMessage
    | LlmMessage
    | TtsMessage
    | McpRequest
    | SystemMessage
    | AlertMessage
    | CustomMessage
    | PongMessage
    | IgnoredMessage
)
