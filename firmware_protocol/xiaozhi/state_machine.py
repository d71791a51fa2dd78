"""State machine of the dialogue between a board and its session, for one connection.

Pure: events go in with their time, and actions for the door come out.

    idle --listen start--> listening --the turn is over--> thinking --tts start--> speaking
     ^                         ^------- tts stop (realtime) --------------------------'
     '------------------------------- tts stop (auto: until the next listen start; manual)

Every way out of speaking sends `tts stop`: without it a device neither listens nor plays again.
"""

from dataclasses import dataclass, field
from typing import Literal, assert_never

from firmware_protocol.xiaozhi.messages import (
    AbortMessage,
    AudioParams,
    DeviceFeatures,
    DeviceHello,
    DeviceMessage,
    Emotion,
    IgnoredMessage,
    ListenDetect,
    ListenMode,
    ListenStart,
    ListenStop,
    LlmMessage,
    McpAnswer,
    PingMessage,
    PongMessage,
    ServerHello,
    ServerMessage,
    SttMessage,
    TtsMessage,
    TurnLatencies,
)
from firmware_protocol.xiaozhi.pacing import PacketPacer, PacketPacerSettings

DialogueActivity = Literal["idle", "listening", "thinking", "speaking"]


@dataclass(frozen=True, slots=True)
class DialogueSettings:
    """Limits and formats of one connection."""

    hello_timeout_s: float = 10.0
    "Longest wait for the device's hello. A device itself waits as long for ours, then gives up."
    max_turn_s: float = 20.0
    "Longest utterance when the server finds its end: a radio in the room never ends."
    max_silence_s: float = 20.0
    "Silence with an open microphone after which the conversation ends and the device goes idle."
    typed_after_s: float = 0.5
    """Wait for `listen start` after a text. Firmware sends it right after a wake word, so a text
    that it does not follow was typed."""
    max_text_chars: int = 1000
    "Longest typed text that is answered, as much as a user types at once; the rest is cut off."
    max_idle_s: float = 300.0
    "Idle time with a closed microphone. A device itself gives up a connection after 120 s."
    downlink: AudioParams = field(default_factory=AudioParams)
    "Format of the sound that we send."
    pace: PacketPacerSettings = field(default_factory=PacketPacerSettings)


@dataclass(frozen=True, slots=True)
class SendMessage:
    """Action: send a message to the device."""

    message: ServerMessage


@dataclass(frozen=True, slots=True)
class BeginInput:
    """Action: drop the input so far, and detect the end of turns by this mode."""

    mode: ListenMode


@dataclass(frozen=True, slots=True)
class CommitInput:
    """Action: end the user's turn."""

    requests_response: bool
    "True: also request the answer (push to talk); False: the session requests it by itself."


@dataclass(frozen=True, slots=True)
class CancelResponse:
    """Action: cancel the response."""


@dataclass(frozen=True, slots=True)
class CreateTextResponse:
    """Action: answer a text that the user typed."""

    text: str


@dataclass(frozen=True, slots=True)
class ReportWakeWord:
    """Action: find out whether this device answers the wake word; see `Dialogue.wake_word_lost`."""

    wake_word: str


@dataclass(frozen=True, slots=True)
class CloseConnection:
    """Action: close the connection. A device then goes idle, without a sound."""

    reason: Literal["hello_expected", "silence", "idle", "another_device_answers"]


DialogueAction = (
    SendMessage
    | BeginInput
    | CommitInput
    | CancelResponse
    | CreateTextResponse
    | ReportWakeWord
    | CloseConnection
)


class Dialogue:
    """The dialogue of one connection; McpAnswers are handled elsewhere.

    `now`: time of the connection's start; all times are monotonic, in seconds.
    """

    def __init__(
        self, session_id: str, now: float, settings: DialogueSettings | None = None
    ) -> None:
        self._settings = settings or DialogueSettings()
        self._session_id = session_id
        self.pacer = PacketPacer(self._settings.pace)
        self.features: DeviceFeatures | None = None
        "Abilities of the device; None: it has not sent its hello."
        self.packet_ms = 60
        "Duration of the device's packets."
        self.mode: ListenMode = "auto"
        self._is_open = False
        "The device's microphone is on, by its messages."
        self._is_speaking = False
        "True between `tts start` and `tts stop`."
        self._is_thinking = False
        self._user_since: float | None = None
        "Start of the user's current speech; None: the user is silent."
        self._quiet_since = now
        "Time of the last event."
        self._timing: TurnLatencies | None = None
        self._perhaps_typed: tuple[str, float] | None = None
        "(text, time) of a text that came while the device did not listen: typed, or a wake word."
        self._lost_at: float | None = None
        "Time at which another device was chosen to answer the wake word; None: none was."

    @property
    def activity(self) -> DialogueActivity:
        """State of the dialogue."""
        if self._is_speaking:
            return "speaking"
        if self._is_thinking:
            return "thinking"
        return "listening" if self._is_open else "idle"

    @property
    def is_speaking(self) -> bool:
        """True between `tts start` and `tts stop`."""
        return self._is_speaking

    @property
    def takes_audio(self) -> bool:
        """True if packets of sound are input for the session.

        Packets before `listen` hold a wake word and are not. Without echo cancellation on the
        device (all modes but realtime) packets are ignored while it speaks: our own voice would
        interrupt us.
        """
        is_heard = self._is_open and (not self._is_speaking or self.mode == "realtime")
        return is_heard and self._lost_at is None

    @property
    def is_waiting(self) -> bool:
        """True if the device is neither in a conversation nor about to leave: it waits for its wake
        word, and its packets hold the wake word."""
        return self.features is not None and self.activity == "idle" and self._lost_at is None

    # Messages from the device.

    def receive(self, message: DeviceMessage, now: float) -> list[DialogueAction]:
        """Returns the actions for a message from the device."""
        self._quiet_since = now
        match message:
            case DeviceHello():
                self.features = message.features
                self.packet_ms = message.audio_params.frame_duration
                audio_params = self._settings.downlink
                return [SendMessage(ServerHello("websocket", self._session_id, audio_params))]
            case ListenStart(mode=mode):
                return self._listen(mode)
            case ListenStop():
                return self._stop_listening()
            case AbortMessage():
                return [CancelResponse(), *self._stop_speaking(must_send=True)]
            case PingMessage():
                return [SendMessage(PongMessage())]
            case ListenDetect(text=text):
                return self._detected(text.strip(), now)
            case McpAnswer() | IgnoredMessage():
                return []
            case _:
                assert_never(message)

    def _listen(self, mode: ListenMode) -> list[DialogueAction]:
        """Returns the actions for `listen start`.

        If we speak, the message has crossed our `tts start` on its way, and the answer goes on. An
        answer that has not begun is cancelled: its `tts start` would end the new turn.
        """
        self.mode, self._is_open = mode, True
        self._perhaps_typed = None
        if self._is_speaking:
            return []
        was_thinking, self._is_thinking = self._is_thinking, False
        self._user_since = None
        return [CancelResponse(), BeginInput(mode)] if was_thinking else [BeginInput(mode)]

    def _detected(self, text: str, now: float) -> list[DialogueAction]:
        """Takes a wake word or a typed text.

        A wake word comes before the device listens, and a `listen start` follows. Clients on
        computers send typed texts while they listen, or never listen.
        """
        if not text:
            return []
        if self._is_open:
            return self._answer_text(text)
        self._perhaps_typed = (text, now)
        return [ReportWakeWord(text)]

    def wake_word_lost(self, now: float) -> None:
        """Records that another device answers the wake word.

        The device goes idle when the connection closes (`tick`), but only when it listens: it would
        report an error if it could not send `listen start`.
        """
        self._lost_at, self._perhaps_typed = now, None

    def _answer_text(self, text: str) -> list[DialogueAction]:
        self._perhaps_typed = None
        text = text[: self._settings.max_text_chars]
        is_busy = self._is_speaking or self._is_thinking
        stopped = [CancelResponse(), *self._stop_speaking()] if is_busy else []
        self._is_thinking = True
        return [*stopped, SendMessage(SttMessage(text)), CreateTextResponse(text)]

    def _stop_listening(self) -> list[DialogueAction]:
        if self.mode != "manual" or not self._is_open:
            return []
        self._is_open = False
        return [CommitInput(requests_response=True)]

    # Events of the session.

    def speech_started(self, now: float) -> None:
        """Records that the user began to speak."""
        self._user_since = self._quiet_since = now

    def speech_ended(self, now: float) -> None:
        """Records that the user's utterance is over and is being recognised."""
        self._user_since, self._quiet_since = None, now
        self._is_thinking = True

    def speech_discarded(self, now: float) -> None:
        """Records that the sound was no speech."""
        self._user_since, self._quiet_since = None, now

    def partial_transcript(self, text: str) -> list[DialogueAction]:
        """Returns the actions for a partial transcript, while the user speaks."""
        wanted = self.features is not None and self.features.partial and text
        return [SendMessage(SttMessage(text, partial=True))] if wanted else []

    def final_transcript(self, text: str, now: float, *, is_answered: bool) -> list[DialogueAction]:
        """Returns the actions for a final transcript. `text`: empty if it was noise.

        `tts start` is sent at once, because sound may follow only a moment later. But it closes the
        microphone. So it waits if the user speaks on; the answer is then to the whole sentence.
        """
        self._quiet_since = now
        if not text:
            self._is_thinking = False
            return []
        goes_on = self._is_open if self.mode == "manual" else self._user_since is not None
        begins = is_answered and not goes_on
        return [SendMessage(SttMessage(text)), *(self.answer_begun(now) if begins else ())]

    def answer_begun(self, now: float) -> list[DialogueAction]:
        """Returns the actions at the start of an answer or an announcement."""
        if self._is_speaking or self.features is None:
            return []
        self._is_speaking, self._is_thinking = True, False
        self._timing = None
        self.pacer.start(now)
        return [SendMessage(TtsMessage("start")), _face("happy")]

    def clause(self, text: str) -> list[DialogueAction]:
        """Returns the actions before the sound of a clause is sent."""
        return [SendMessage(TtsMessage("sentence_start", text=text))] if self._is_speaking else []

    def interrupted(self) -> list[DialogueAction]:
        """Returns the actions for a barge-in that the server detected."""
        return self._stop_speaking()

    def set_latencies(self, timing: TurnLatencies) -> None:
        """Stores the latencies of the turn, which are sent with `tts stop`."""
        self._timing = timing

    # Time.

    def tick(self, now: float, *, is_answering: bool) -> list[DialogueAction]:
        """Returns the actions that are due; to be called after every packet and several times a
        second.

        `is_answering`: the session has an answer, or may soon have one.
        """
        settings = self._settings
        if self.features is None:
            is_late = now - self._quiet_since > settings.hello_timeout_s
            return [CloseConnection("hello_expected")] if is_late else []
        if self._lost_at is not None:
            is_settled = self._is_open or now - self._lost_at >= settings.typed_after_s
            return [CloseConnection("another_device_answers")] if is_settled else []
        if self._perhaps_typed is not None:
            text, at = self._perhaps_typed
            if now - at >= settings.typed_after_s:
                return self._answer_text(text)
        if is_answering or self._is_speaking:
            self._quiet_since = now
            is_over = not is_answering and now >= self.pacer.finished_at()
            return self._stop_speaking() if is_over and self._is_speaking else []
        self._is_thinking = False
        if self._user_since is not None and self.mode != "manual":
            return self._end_long_turn(now)
        quiet_s = now - self._quiet_since
        if self._is_open and self.mode != "manual":
            return [CloseConnection("silence")] if quiet_s > settings.max_silence_s else []
        return [CloseConnection("idle")] if quiet_s > settings.max_idle_s else []

    def _end_long_turn(self, now: float) -> list[DialogueAction]:
        assert self._user_since is not None
        if now - self._user_since <= self._settings.max_turn_s:
            return []
        self._user_since, self._quiet_since = None, now
        return [CommitInput(requests_response=False)]

    def _stop_speaking(self, *, must_send: bool = False) -> list[DialogueAction]:
        was_speaking, self._is_speaking = self._is_speaking, False
        self._is_thinking = False
        if not (was_speaking or must_send):
            return []
        self._is_open = self._is_open and self.mode == "realtime"
        stop = TtsMessage("stop")
        if self._timing is not None and self.features is not None and self.features.timing:
            stop = TtsMessage("stop", timing=self._timing)
        self._timing = None
        return [SendMessage(stop), _face("neutral")]


def _face(emotion: Emotion) -> SendMessage:
    return SendMessage(LlmMessage(emotion))
