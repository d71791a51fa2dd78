"""Bridge between a session and the dialogue with its board.

Events of the session go to the dialogue; actions of the dialogue are carried out in the session.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import assert_never

from core.conversation.events import (
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
from core.conversation.ids import new_id
from core.conversation.items import MessageItem, TextPart
from core.errors import Conflict, RequestError
from core.ports import Clock
from devices.xiaozhi.audio import DeviceAudioOutput
from firmware_protocol.xiaozhi.messages import ListenMode, TurnLatencies
from firmware_protocol.xiaozhi.state_machine import (
    BeginInput,
    CancelResponse,
    CommitInput,
    CreateTextResponse,
    Dialogue,
    DialogueAction,
)
from pipeline.session.session import Session
from pipeline.shared.settings import ResponseRequest, SessionSettings
from pipeline.shared.turn import TurnMark
from pipeline.transcription.stitching import join_texts


class SessionBridge:
    """Bridge of one connection."""

    def __init__(
        self,
        dialogue: Dialogue,
        session: Session,
        audio_output: DeviceAudioOutput,
        settings: SessionSettings,
        clock: Clock,
    ) -> None:
        """settings: those of the session, in every mode but push-to-talk."""
        self.marks: Mapping[str, float] | None = None
        "Marks of the last turn; None before the first."
        self._dialogue, self._session, self._audio_output = dialogue, session, audio_output
        self._settings, self._clock = settings, clock
        self._playing_response_id: str | None = None
        "Id of the response that is being played."

    def take_event(self, session_event: SessionEvent) -> Iterable[DialogueAction]:
        """Passes an event to the dialogue and returns the actions that follow."""
        dialogue, session, now = self._dialogue, self._session, self._clock.now()
        match session_event:
            case SpeechStarted():
                dialogue.speech_started(now)
            case SpeechDiscarded():
                dialogue.speech_discarded(now)
            case InputCommitted():
                dialogue.speech_ended(now)
            case HypothesisChanged(stable=stable, unstable=unstable):
                return dialogue.partial_transcript(join_texts([stable, unstable]))
            case TranscriptionCompleted(transcript=transcript):
                is_answered = session.expects_response
                return dialogue.final_transcript(transcript, now, is_answered=is_answered)
            case TranscriptionFailed():
                return dialogue.final_transcript("", now, is_answered=False)
            case OutputItemAdded(item=MessageItem()):
                return dialogue.answer_begun(now)
            case PlayoutStarted(response_id=response_id):
                self._playing_response_id = response_id
            case PlayoutCleared(response_id=response_id) if (
                response_id == self._playing_response_id
            ):
                self._audio_output.drop()
                return dialogue.interrupted()
            case TurnTimeline():
                self.marks = dict(session_event.marks)
                dialogue.set_latencies(_timing(session_event))
            case _:
                pass
        return ()

    def run_action(
        self, action: BeginInput | CommitInput | CancelResponse | CreateTextResponse
    ) -> None:
        """Carries out an action of the dialogue."""
        match action:
            case BeginInput(mode=mode):
                self._listen(mode)
            case CommitInput(requests_response=requests_response):
                with suppress(RequestError):  # the button was only touched
                    self._commit_input(requests_response=requests_response)
            case CancelResponse():
                self._cancel()
            case CreateTextResponse(text=text):
                self._session.add_item(MessageItem(new_id("item"), "user", (TextPart(text),)))
                self._session.create_response(ResponseRequest())
            case _:
                assert_never(action)

    def _listen(self, mode: ListenMode) -> None:
        settings, features = self._settings, self._dialogue.features
        if mode == "manual":
            settings = replace(settings, turn_detection=None)
        elif mode == "realtime" and features and features.aec and settings.echo == "off":
            # The device buffers audio, so the server's echo cancellation does not know when it is
            # played.
            settings = replace(settings, echo="half_duplex")
        self._session.configure(settings)
        self._session.clear_input()

    def _commit_input(self, *, requests_response: bool) -> None:
        """Ends the utterance. requests_response: also ask for a response.

        Raises RequestError, also while a response is active.
        """
        self._session.commit_input()
        if requests_response:
            self._session.create_response(ResponseRequest())

    def _cancel(self) -> None:
        self._playing_response_id = None
        self._audio_output.drop()
        with suppress(Conflict):
            self._session.cancel_response()
        self._session.clear_output()


def error_in(session_event: SessionEvent) -> str:
    """Returns the stable code of an error; empty: the event is no error."""
    match session_event:
        case TranscriptionFailed(code=code) | ErrorEvent(code=code):
            return code
        case ResponseDone(status="failed", error_code=code):
            return code or ""
        case _:
            return ""


def _timing(timeline: TurnTimeline) -> TurnLatencies:
    marks = timeline.marks
    return TurnLatencies(
        timeline.response_latency_ms,
        marks.get(TurnMark.ASR_FINAL),
        marks.get(TurnMark.LLM_FIRST_TOKEN),
        marks.get(TurnMark.TTS_FIRST_AUDIO),
    )
