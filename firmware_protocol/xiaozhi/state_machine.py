"""Whose turn it is on one connection. Pure: what happens goes in with the time, and what the door
is to do comes out. Sheet section 7.

    idle --listen start--> listening --the turn is over--> thinking --tts start--> speaking
     ^                         ^------- tts stop (realtime) --------------------------'
     '------------------------------- tts stop (auto: until the next listen start; manual)

Every way out of speaking sends `tts stop`: without it a device is silent and deaf for ever.
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
    hello_timeout_s: float = 10.0
    "A device gives up on our hello after as much, so one that sends none is no device."
    max_turn_s: float = 20.0
    "Of one utterance, where we find its end: a radio never ends."
    max_silence_s: float = 20.0
    "While the microphone is open. Then the conversation is over: the device goes idle."
    typed_after_s: float = 0.5
    """Firmware listens right after a wake word. A text after which a device does not was typed."""
    max_text_chars: int = 1000
    "The longest typed text that is answered: as much as a person types at once."
    max_idle_s: float = 300.0
    "With the microphone closed. A device takes a connection for dead after 120 s anyway."
    downlink: AudioParams = field(default_factory=AudioParams)
    pace: PacketPacerSettings = field(default_factory=PacketPacerSettings)


@dataclass(frozen=True, slots=True)
class SendMessage:
    message: ServerMessage


@dataclass(frozen=True, slots=True)
class BeginInput:
    """Forget what was heard so far, and find the end of turns by yourself or not."""

    mode: ListenMode


@dataclass(frozen=True, slots=True)
class CommitInput:
    """The turn is over."""

    asks: bool
    "Nobody but us will ask for the answer (push-to-talk)."


@dataclass(frozen=True, slots=True)
class CancelResponse:
    """Say nothing more of what is being said."""


@dataclass(frozen=True, slots=True)
class CreateTextResponse:
    """Answer a text that a person typed."""

    text: str


@dataclass(frozen=True, slots=True)
class CloseConnection:
    reason: Literal["hello_expected", "silence", "idle"]


DialogueAction = (
    SendMessage | BeginInput | CommitInput | CancelResponse | CreateTextResponse | CloseConnection
)


class Dialogue:
    """One connection's, which began at `now`. McpAnswers are not for here."""

    def __init__(
        self, session_id: str, now: float, settings: DialogueSettings | None = None
    ) -> None:
        self._settings = settings or DialogueSettings()
        self._session_id = session_id
        self.pacer = PacketPacer(self._settings.pace)
        self.features: DeviceFeatures | None = None
        "None: it has not said hello."
        self.packet_ms = 60
        "Of its own packets."
        self.mode: ListenMode = "auto"
        self._is_open = False
        "Its microphone, as far as we were told."
        self._is_speaking = False
        "Between `tts start` and `tts stop`."
        self._is_thinking = False
        self._user_since: float | None = None
        "Since when the user has been speaking."
        self._quiet_since = now
        self._timing: TurnLatencies | None = None
        self._perhaps_typed: tuple[str, float] | None = None
        "A text that came before the device listens, and when: typed, or a wake word."

    @property
    def doing(self) -> DialogueActivity:
        if self._is_speaking:
            return "speaking"
        if self._is_thinking:
            return "thinking"
        return "listening" if self._is_open else "idle"

    @property
    def is_speaking(self) -> bool:
        return self._is_speaking

    @property
    def hears(self) -> bool:
        """Whether packets are for our ear. Wake words come before `listen`, and are not; a device
        that does not take out its echo would interrupt us with our own voice."""
        return self._is_open and (not self._is_speaking or self.mode == "realtime")

    # What the device says.

    def receive(self, message: DeviceMessage, now: float) -> list[DialogueAction]:
        self._quiet_since = now
        match message:
            case DeviceHello():
                self.features = message.features
                self.packet_ms = message.audio_params.frame_duration
                ours = self._settings.downlink
                return [SendMessage(ServerHello("websocket", self._session_id, ours))]
            case ListenStart(mode=mode):
                return self._listen(mode)
            case ListenStop():
                return self._stop_listening()
            case AbortMessage():
                return [CancelResponse(), *self._stop_speaking(must_tell=True)]
            case PingMessage():
                return [SendMessage(PongMessage())]
            case ListenDetect(text=text):
                return self._detected(text.strip(), now)
            case McpAnswer() | IgnoredMessage():
                return []
            case _:
                assert_never(message)

    def _listen(self, mode: ListenMode) -> list[DialogueAction]:
        """While we speak it has crossed our `tts start` on its way: what we say is heard. An answer
        that is not heard yet would end the new turn with its `tts start`."""
        self.mode, self._is_open = mode, True
        self._perhaps_typed = None
        if self._is_speaking:
            return []
        was_thinking, self._is_thinking = self._is_thinking, False
        self._user_since = None
        return [CancelResponse(), BeginInput(mode)] if was_thinking else [BeginInput(mode)]

    def _detected(self, text: str, now: float) -> list[DialogueAction]:
        """A wake word comes before the device listens: it is said by the `listen` that follows.
        Clients on computers send typed text while they listen, or never listen."""
        if not text:
            return []
        if self._is_open:
            return self._asked(text)
        self._perhaps_typed = (text, now)
        return []

    def _asked(self, text: str) -> list[DialogueAction]:
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
        return [CommitInput(asks=True)]

    # What the session tells.

    def speech_started(self, now: float) -> None:
        self._user_since = self._quiet_since = now

    def speech_ended(self, now: float) -> None:
        self._user_since, self._quiet_since = None, now
        self._is_thinking = True

    def speech_dropped(self, now: float) -> None:
        self._user_since, self._quiet_since = None, now

    def words(self, text: str) -> list[DialogueAction]:
        """While they are spoken."""
        wanted = self.features is not None and self.features.partial and text
        return [SendMessage(SttMessage(text, partial=True))] if wanted else []

    def understood(self, text: str, now: float, *, is_answered: bool) -> list[DialogueAction]:
        """All words of an utterance; none: it was noise. `tts start` goes at once, for sound may
        follow only a moment later; but it closes the microphone, into which the user may be
        speaking on: the answer then comes to all of it."""
        self._quiet_since = now
        if not text:
            self._is_thinking = False
            return []
        goes_on = self._is_open if self.mode == "manual" else self._user_since is not None
        begins = is_answered and not goes_on
        return [SendMessage(SttMessage(text)), *(self.answer_begun(now) if begins else ())]

    def answer_begun(self, now: float) -> list[DialogueAction]:
        """It will be spoken; also one that nobody asked for."""
        if self._is_speaking or self.features is None:
            return []
        self._is_speaking, self._is_thinking = True, False
        self._timing = None
        self.pacer.start(now)
        return [SendMessage(TtsMessage("start")), _face("happy")]

    def clause(self, text: str) -> list[DialogueAction]:
        """Its sound goes out next."""
        return [SendMessage(TtsMessage("sentence_start", text=text))] if self._is_speaking else []

    def interrupted(self) -> list[DialogueAction]:
        """Our own ear has found that the user speaks over the answer."""
        return self._stop_speaking()

    def traced(self, timing: TurnLatencies) -> None:
        self._timing = timing

    # What the time brings.

    def tick(self, now: float, *, is_answering: bool) -> list[DialogueAction]:
        """To be asked after every packet, and some times a second. `is_answering`: the session has
        an answer, or may soon have one."""
        of = self._settings
        if self.features is None:
            is_late = now - self._quiet_since > of.hello_timeout_s
            return [CloseConnection("hello_expected")] if is_late else []
        if self._perhaps_typed is not None:
            text, at = self._perhaps_typed
            if now - at >= of.typed_after_s:
                return self._asked(text)
        if is_answering or self._is_speaking:
            self._quiet_since = now
            is_over = not is_answering and now >= self.pacer.over_at()
            return self._stop_speaking() if is_over and self._is_speaking else []
        self._is_thinking = False
        if self._user_since is not None and self.mode != "manual":
            return self._cap(now)
        quiet_s = now - self._quiet_since
        if self._is_open and self.mode != "manual":
            return [CloseConnection("silence")] if quiet_s > of.max_silence_s else []
        return [CloseConnection("idle")] if quiet_s > of.max_idle_s else []

    def _cap(self, now: float) -> list[DialogueAction]:
        assert self._user_since is not None
        if now - self._user_since <= self._settings.max_turn_s:
            return []
        self._user_since, self._quiet_since = None, now
        return [CommitInput(asks=False)]

    def _stop_speaking(self, *, must_tell: bool = False) -> list[DialogueAction]:
        was_speaking, self._is_speaking = self._is_speaking, False
        self._is_thinking = False
        if not (was_speaking or must_tell):
            return []
        self._is_open = self._is_open and self.mode == "realtime"
        stop = TtsMessage("stop")
        if self._timing is not None and self.features is not None and self.features.timing:
            stop = TtsMessage("stop", timing=self._timing)
        self._timing = None
        return [SendMessage(stop), _face("neutral")]


def _face(emotion: Emotion) -> SendMessage:
    return SendMessage(LlmMessage(emotion))
