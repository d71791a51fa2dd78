"""Between a session and the dialogue with its board: what happens there is told here, and what the
dialogue wants is done there."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import assert_never

from core.errors import Conflict, RequestError
from core.events import (
    ErrorEvent,
    HypothesisChanged,
    InputCommitted,
    OutputItemAdded,
    PlayoutCleared,
    PlayoutStarted,
    ResponseDone,
    SessionEvent,
    SpeechDiscarded,
    SpeechStarted,
    TranscriptionCompleted,
    TranscriptionFailed,
    TurnTimeline,
)
from core.ids import new_id
from core.items import MessageItem, TextPart
from core.ports import Clock
from devices.xiaozhi.audio import DeviceAudioOutput
from devices.xiaozhi.ports import XiaozhiSessionPort
from firmware_protocol.xiaozhi.messages import ListenMode, TurnLatencies
from firmware_protocol.xiaozhi.state_machine import (
    BeginInput,
    CancelResponse,
    CommitInput,
    CreateTextResponse,
    Dialogue,
    DialogueAction,
)
from pipeline.shared.settings import ResponseRequest, SessionSettings
from pipeline.shared.turn import TurnMark
from pipeline.transcription.stitching import join_texts


class SessionBridge:
    """One connection's."""

    def __init__(
        self,
        dialogue: Dialogue,
        session: XiaozhiSessionPort,
        mouth: DeviceAudioOutput,
        settings: SessionSettings,
        clock: Clock,
    ) -> None:
        """`settings`: of the session, in every mode but push-to-talk."""
        self.marks: Mapping[str, float] | None = None
        "Of the last turn."
        self._dialogue, self._session, self._mouth = dialogue, session, mouth
        self._settings, self._clock = settings, clock
        self._sounding: str | None = None
        "The response that goes out."

    def told(self, happened: SessionEvent) -> Iterable[DialogueAction]:
        dialogue, session, now = self._dialogue, self._session, self._clock.now()
        match happened:
            case SpeechStarted():
                dialogue.speech_started(now)
            case SpeechDiscarded():
                dialogue.speech_dropped(now)
            case InputCommitted():
                dialogue.speech_ended(now)
            case HypothesisChanged(stable=stable, unstable=unstable):
                return dialogue.words(join_texts([stable, unstable]))
            case TranscriptionCompleted(transcript=transcript):
                return dialogue.understood(transcript, now, is_answered=session.is_answering)
            case TranscriptionFailed():
                return dialogue.understood("", now, is_answered=False)
            case OutputItemAdded(item=MessageItem()):
                return dialogue.answer_begun(now)
            case PlayoutStarted(response_id=response_id):
                self._sounding = response_id
            case PlayoutCleared(response_id=response_id) if response_id == self._sounding:
                self._mouth.drop()
                return dialogue.interrupted()
            case TurnTimeline():
                self.marks = dict(happened.marks)
                dialogue.traced(_timing(happened))
            case _:
                pass
        return ()

    def obey(self, action: BeginInput | CommitInput | CancelResponse | CreateTextResponse) -> None:
        match action:
            case BeginInput(mode=mode):
                self._listen(mode)
            case CommitInput(asks=asks):
                with suppress(RequestError):  # the button was only touched
                    self._commit(asks=asks)
            case CancelResponse():
                self._cancel()
            case CreateTextResponse(text=text):
                self._session.add_item(MessageItem(new_id("item"), "user", (TextPart(text),)))
                self._session.create_response(ResponseRequest())
            case _:
                assert_never(action)

    def _listen(self, mode: ListenMode) -> None:
        wanted, features = self._settings, self._dialogue.features
        if mode == "manual":
            wanted = replace(wanted, turn_detection=None)
        elif mode == "realtime" and features and features.aec and wanted.echo == "off":
            # Ahead of what is played by what the device keeps, sound cannot be cancelled reliably.
            wanted = replace(wanted, echo="half_duplex")
        self._session.configure(wanted)
        self._session.clear_input()

    def _commit(self, *, asks: bool) -> None:
        """Raises RequestError, also where an answer is on its way."""
        self._session.commit_input()
        if asks:
            self._session.create_response(ResponseRequest())

    def _cancel(self) -> None:
        self._sounding = None
        self._mouth.drop()
        with suppress(Conflict):
            self._session.cancel_response()
        self._session.clear_output()


def error_in(happened: SessionEvent) -> str:
    """The stable code of what failed; empty: nothing did."""
    match happened:
        case TranscriptionFailed(code=code) | ErrorEvent(code=code):
            return code
        case ResponseDone(status="failed", error_code=code):
            return code or ""
        case _:
            return ""


def _timing(traced: TurnTimeline) -> TurnLatencies:
    marks = traced.marks
    return TurnLatencies(
        traced.response_latency_ms,
        marks.get(TurnMark.ASR_FINAL),
        marks.get(TurnMark.LLM_FIRST_TOKEN),
        marks.get(TurnMark.TTS_FIRST_AUDIO),
    )
