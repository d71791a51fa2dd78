"""All JSON messages in both directions, as frozen values.

Source: `docs/websocket.md` of xiaozhi's firmware 2.4.2 (https://github.com/78/xiaozhi-esp32).

Unknown fields of incoming messages are ignored: firmware adds some with every version. Devices
ignore a server's `session_id`, so we send it in our hello only.
"""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

ListenMode = Literal["auto", "manual", "realtime"]
"""Mode of a conversation. auto: the server finds the end of the turn, and the microphone is off
while it speaks. manual: a button ends the turn. realtime: the microphone is always on, and the
device removes the echo."""

Emotion = Literal[
    "neutral", "happy", "laughing", "funny", "sad", "angry", "crying", "loving", "embarrassed",
    "surprised", "shocked", "thinking", "winking", "cool", "relaxed", "delicious", "kissy",
    "confident", "sleepy", "silly", "confused",
]  # fmt: skip
"Names of the faces that stock firmware can show."

Json = dict[str, object]


WAKE_WORD_DETECTED = "wake_word_detected"
"Reason of an `AbortMessage`: the device detected its wake word in the middle of a conversation."


class AudioParams(Struct, frozen=True):
    """Format of the sound that one side sends."""

    format: Literal["opus"] = "opus"
    sample_rate: Literal[8000, 12000, 16000, 24000, 48000] = 24000
    channels: Literal[1] = 1
    frame_duration: Literal[5, 10, 20, 40, 60, 80, 100, 120] = 60
    "Duration of a packet in ms."


class DeviceFeatures(Struct, frozen=True, omit_defaults=True):
    """Abilities of a device. The last two are Earshot's own; stock firmware has neither."""

    mcp: bool = False
    "The device offers tools by MCP."
    aec: bool = False
    "The device wants the server to cancel the echo."
    partial: bool = False
    "The device shows words while they are spoken: `SttMessage.partial`."
    timing: bool = False
    "The device shows the latencies of a turn: `TtsMessage.timing`."


class _Message(Struct, frozen=True, tag_field="type"):
    pass


class _FromDevice(_Message, frozen=True):
    session_id: str | UnsetType = UNSET
    "Id from our hello; empty or absent before."


# Device to server.


class DeviceHello(_FromDevice, frozen=True, tag="hello"):
    """First message of a connection. The device waits 10 s for our hello."""

    version: int = 1
    transport: str = "websocket"
    features: DeviceFeatures = DeviceFeatures()
    audio_params: AudioParams = AudioParams(sample_rate=16000)


class ListenStart(_FromDevice, frozen=True, tag="listen", kw_only=True):
    """The microphone is on from now on."""

    mode: ListenMode
    state: Literal["start"] = "start"


class ListenStop(_FromDevice, frozen=True, tag="listen"):
    """The button was released; only in manual mode."""

    state: Literal["stop"] = "stop"


class ListenDetect(_FromDevice, frozen=True, tag="listen"):
    """A wake word that the firmware detected, or a sentence that a user typed on a computer.

    Both are the same message.
    """

    text: str = ""
    state: Literal["detect"] = "detect"


class AbortMessage(_FromDevice, frozen=True, tag="abort"):
    """Request to stop speaking. The device stays in its speaking state until `TtsMessage` stop."""

    reason: str | UnsetType = UNSET
    "`WAKE_WORD_DETECTED`, or absent after the button."


class PingMessage(_FromDevice, frozen=True, tag="ping"):
    """Ping, which stock firmware does not send; the community's server answers it."""


class McpAnswer(_FromDevice, frozen=True, tag="mcp", kw_only=True):
    """An MCP answer of the device (see `DeviceMcpClient.receive`)."""

    payload: Json


class IgnoredMessage(Struct, frozen=True):
    """A valid message without effect.

    Examples: `iot` of firmware before 1.8; `goodbye`, which belongs to MQTT (here the end of the
    socket ends the conversation); types of newer firmware.
    """

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
    """Answer to the device's hello.

    Without `transport` a device crashes; with another value than `websocket` it goes on waiting.
    """

    transport: Literal["websocket"]
    session_id: str | UnsetType = UNSET
    audio_params: AudioParams | UnsetType = UNSET
    "Format of the sound that we send; absent: 24 kHz in packets of 60 ms."


class SttMessage(_Message, frozen=True, tag="stt"):
    """Transcript of the user's speech."""

    text: str
    partial: bool | UnsetType = UNSET
    "True: a partial. Only for devices that announced `partial`; others would show each of them."


class LlmMessage(_Message, frozen=True, tag="llm"):
    """The face that the device shows (`Emotion`)."""

    emotion: str | UnsetType = UNSET
    text: str | UnsetType = UNSET


class TurnLatencies(Struct, frozen=True, omit_defaults=True):
    """Latencies of a turn in ms since the end of the user's speech; absent: it did not happen."""

    response_latency_ms: float | None = None
    transcript_ms: float | None = None
    first_text_ms: float | None = None
    first_audio_ms: float | None = None


class TtsMessage(_Message, frozen=True, tag="tts"):
    """Progress of the speech. A device takes sound only between start and stop."""

    state: Literal["start", "sentence_start", "sentence_end", "stop"]
    text: str | UnsetType = UNSET
    timing: TurnLatencies | UnsetType = UNSET
    "Sent with stop to devices that announced `timing`."


class McpRequest(_Message, frozen=True, tag="mcp"):
    """An MCP request to the device (see `DeviceMcpClient`)."""

    payload: Json


class SystemMessage(_Message, frozen=True, tag="system"):
    """A command to the device itself."""

    command: str
    "Name of the command; firmware knows only `reboot`."


class AlertMessage(_Message, frozen=True, tag="alert"):
    """A message that the device shows. The device needs all three fields."""

    status: str
    message: str
    emotion: str


class CustomMessage(_Message, frozen=True, tag="custom"):
    """A free message for firmware built with CONFIG_RECEIVE_CUSTOM_MESSAGE."""

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
