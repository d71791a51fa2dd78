"""Between a session and the dialogue with its board: what happens there is told here, and what the
dialogue wants is done there."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import assert_never

from core.errors import Conflict, RequestError
from core.events import (
    Failed,
    HypothesisChanged,
    InputCommitted,
    OutputItemAdded,
    PlayoutCleared,
    PlayoutStarted,
    ResponseDone,
    SessionEvent,
    SpeechDiscarded,
    SpeechStarted,
    Transcribed,
    TranscriptionFailed,
    TurnTraced,
)
from core.ids import new_id
from core.items import MessageItem, TextPart
from core.ports import Clock
from devices.xiaozhi.audio import Mouth
from devices.xiaozhi.ports import Session
from firmware_protocol.xiaozhi.messages import Mode, Timing
from firmware_protocol.xiaozhi.state_machine import Action, Ask, Cancel, Commit, Dialogue, Hear
from pipeline.shared.settings import ResponseRequest, SessionSettings
from pipeline.shared.turn import Mark
from pipeline.transcription.writing import join_texts


class Turns:
    """One connection's."""

    def __init__(
        self,
        dialogue: Dialogue,
        session: Session,
        mouth: Mouth,
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

    def told(self, happened: SessionEvent) -> Iterable[Action]:
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
            case Transcribed(transcript=transcript):
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
            case TurnTraced():
                self.marks = dict(happened.marks)
                dialogue.traced(_timing(happened))
            case _:
                pass
        return ()

    def obey(self, action: Hear | Commit | Cancel | Ask) -> None:
        match action:
            case Hear(mode=mode):
                self._listen(mode)
            case Commit(asks=asks):
                with suppress(RequestError):  # the button was only touched
                    self._commit(asks=asks)
            case Cancel():
                self._cancel()
            case Ask(text=text):
                self._session.add_item(MessageItem(new_id("item"), "user", (TextPart(text),)))
                self._session.create_response(ResponseRequest())
            case _:
                assert_never(action)

    def _listen(self, mode: Mode) -> None:
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
        case TranscriptionFailed(code=code) | Failed(code=code):
            return code
        case ResponseDone(status="failed", error_code=code):
            return code or ""
        case _:
            return ""


def _timing(traced: TurnTraced) -> Timing:
    marks = traced.marks
    return Timing(
        traced.response_latency_ms,
        marks.get(Mark.ASR_FINAL),
        marks.get(Mark.LLM_FIRST_TOKEN),
        marks.get(Mark.TTS_FIRST_AUDIO),
    )
