"""Session events to Realtime server events and client texts to client events. No I/O."""

from dataclasses import replace
from typing import Any, Literal, assert_never

from core.events import (
    Failed,
    HypothesisChanged,
    InputCleared,
    InputCommitted,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    ItemTruncated,
    OutputAudio,
    OutputItemAdded,
    OutputItemDone,
    OutputText,
    PlayoutCleared,
    PlayoutStarted,
    PlayoutStopped,
    ResponseCreated,
    ResponseDone,
    SessionEvent,
    SpeechDiscarded,
    SpeechStarted,
    SpeechStopped,
    TimeoutTriggered,
    Transcribed,
    TranscriptionFailed,
    TurnTraced,
)
from core.items import FunctionCallItem, MessageItem
from core.quality import ConnectionQuality
from signaling.realtime.beta import to_beta, to_ga
from signaling.realtime.events import ClientEvent
from signaling.realtime.incoming import decode
from signaling.realtime.quality import QUALITY_EVENT, connection_json
from signaling.realtime.server_events import (
    TRANSCRIPTION,
    Json,
    arguments_done,
    error_event,
    event,
    item_json,
    part_json,
    response_json,
    to_text,
    transcribed,
    turn_json,
)
from signaling.realtime.session import Terms, session_json
from signaling.realtime.sound import Spoken

Transport = Literal["webrtc", "websocket"]


class Translator:
    """One connection's translation. It only remembers what an event needs from an earlier one."""

    def __init__(
        self, terms: Terms, session_id: str, conversation_id: str, *, transport: Transport
    ) -> None:
        self.terms = replace(terms, conversation_id=conversation_id)
        self._session_id, self._conversation_id = session_id, conversation_id
        self._transport = transport
        self._sent = 0
        self._modality = terms.settings.modality
        self._in_conversation = True
        "Of the response that is being given."
        self._speech_start_ms: int | None = None
        self._spoken = Spoken()

    def receive(self, text: str) -> ClientEvent:
        """One text frame as an event. Raises BadEvent."""
        return decode(text, to_ga if self.terms.is_beta else None)

    def created(self) -> Json:
        return self._numbered(event("session.created", session=self._session()))

    def updated(self) -> Json:
        return self._numbered(event("session.updated", session=self._session()))

    def error(
        self,
        code: str,
        message: str,
        *,
        kind: Literal["invalid_request_error", "server_error"] = "invalid_request_error",
        param: str | None = None,
        event_id: str | None = None,
    ) -> Json:
        return self._numbered(error_event(code, message, kind=kind, param=param, event_id=event_id))

    def home(self, home: object) -> Json:
        """`home`: anything that JSON can be made of."""
        return self._numbered(event("earshot.home", home=home))

    def connection(self, quality: ConnectionQuality) -> Json:
        return self._numbered(event(QUALITY_EVENT, connection=connection_json(quality)))

    def to_json(self, happened: SessionEvent) -> list[Json]:
        """The server events for one session event, in the order to send them."""
        return [self._numbered(out) for out in self._translated(happened)]

    def to_text(self, out: Json) -> str | None:
        """An event as this client reads it; None: it knows no such event."""
        shown = to_beta(out) if self.terms.is_beta else out
        return None if shown is None else to_text(shown)

    def _numbered(self, out: Json) -> Json:
        self._sent += 1
        return {"type": out["type"], "event_id": f"evt_{self._sent}", **out}

    def _session(self) -> Json:
        return session_json(self.terms, self._session_id)

    def _translated(self, happened: SessionEvent) -> list[Json]:
        match happened:
            case (
                SpeechStarted()
                | SpeechStopped()
                | SpeechDiscarded()
                | TimeoutTriggered()
                | InputCommitted()
                | InputCleared()
            ):
                return self._input(happened)
            case HypothesisChanged() | Transcribed() | TranscriptionFailed():
                return self._transcription(happened)
            case ItemAdded() | ItemDone() | ItemTruncated() | ItemDeleted() | ItemRetrieved():
                return [_of_conversation(happened)]
            case ResponseCreated() | ResponseDone():
                return [self._response(happened)]
            case OutputItemAdded() | OutputItemDone():
                return self._output_item(happened)
            case OutputText() | OutputAudio():
                return self._delta(happened)
            case PlayoutStarted() | PlayoutStopped() | PlayoutCleared():
                return self._playout(happened)
            case TurnTraced():
                shown = "earshot.turn" in self.terms.include
                return [event("earshot.turn", turn=turn_json(happened))] if shown else []
            case Failed(code, message):
                return [error_event(code, message, kind="server_error")]
            case _:
                assert_never(happened)

    def _input(
        self,
        happened: SpeechStarted
        | SpeechStopped
        | SpeechDiscarded
        | TimeoutTriggered
        | InputCommitted
        | InputCleared,
    ) -> list[Json]:
        match happened:
            case SpeechStarted(item_id, start_ms):
                self._speech_start_ms = start_ms
                return [_speech("started", item_id=item_id, audio_start_ms=start_ms)]
            case SpeechStopped(item_id, end_ms):
                self._speech_start_ms = None
                return [_speech("stopped", item_id=item_id, audio_end_ms=end_ms)]
            case SpeechDiscarded(item_id):  # no event of its own: speech of no length ends
                end_ms_or_none, self._speech_start_ms = self._speech_start_ms, None
                if end_ms_or_none is None:
                    return []
                return [_speech("stopped", item_id=item_id, audio_end_ms=end_ms_or_none)]
            case TimeoutTriggered(item_id, start_ms, end_ms):
                span: Json = {"audio_start_ms": start_ms, "audio_end_ms": end_ms}
                name = "input_audio_buffer.timeout_triggered"
                return [event(name, item_id=item_id, **span)]
            case InputCommitted(item_id, previous):
                name = "input_audio_buffer.committed"
                return [event(name, item_id=item_id, previous_item_id=previous)]
            case InputCleared():
                return [event("input_audio_buffer.cleared")]
            case _:
                assert_never(happened)

    def _transcription(
        self, happened: HypothesisChanged | Transcribed | TranscriptionFailed
    ) -> list[Json]:
        if not self.terms.settings.transcribes:
            return []
        match happened:
            case HypothesisChanged(item_id, stable, unstable, audio_ms):
                if "earshot.hypothesis" not in self.terms.include:
                    return []
                return [
                    event(
                        "earshot.hypothesis",
                        item_id=item_id,
                        stable=stable,
                        unstable=unstable,
                        audio_ms=audio_ms,
                    )
                ]
            case Transcribed():
                return transcribed(happened)
            case TranscriptionFailed(item_id, code, message):
                error = {"type": "server_error", "code": code, "message": message, "param": None}
                return [
                    event(f"{TRANSCRIPTION}.failed", item_id=item_id, content_index=0, error=error)
                ]
            case _:
                assert_never(happened)

    def _response(self, happened: ResponseCreated | ResponseDone) -> Json:
        self._modality = happened.modality
        self._in_conversation = happened.terms.in_conversation
        response = response_json(happened, self._conversation_id, self.terms)
        is_done = isinstance(happened, ResponseDone)
        return event("response.done" if is_done else "response.created", response=response)

    def _output_item(self, happened: OutputItemAdded | OutputItemDone) -> list[Json]:
        is_done = isinstance(happened, OutputItemDone)
        stage = "done" if is_done else "added"
        out = item_json(happened.item)
        ids: Json = {
            "response_id": happened.response_id,
            "output_index": happened.output_index,
        }
        whole = event(f"response.output_item.{stage}", **ids, item=out)
        listed: list[Json] = []
        if self._in_conversation:
            listed = [_item(f"conversation.item.{stage}", out, happened.previous_item_id)]
        ids["item_id"] = happened.item.id
        match happened.item:
            case MessageItem(text=text) if isinstance(happened, OutputItemDone):
                return [*self._content_done(happened, ids, text), whole, *listed]
            case MessageItem():
                part = part_json(self._modality, "")
                opened = event("response.content_part.added", **ids, content_index=0, part=part)
                return [whole, *listed, opened]
            case FunctionCallItem() as call if is_done:
                return [*arguments_done(call, ids), whole, *listed]
            case _:
                return [whole, *listed]

    def _content_done(self, done: OutputItemDone, ids: Json, text: str) -> list[Json]:
        ids = {**ids, "content_index": 0}
        closed = event("response.content_part.done", **ids, part=part_json(self._modality, text))
        if self._modality == "text":
            return [event("response.output_text.done", **ids, text=text), closed]
        pieces = self._spoken.finish(done.item.id)
        rest = [event("response.output_audio.delta", **ids, delta=piece) for piece in pieces]
        sound = [event("response.output_audio.done", **ids)] if done.has_audio else []
        return [
            *rest,
            *sound,
            event("response.output_audio_transcript.done", **ids, transcript=text),
            closed,
        ]

    def _delta(self, happened: OutputText | OutputAudio) -> list[Json]:
        ids: Json = {
            "response_id": happened.response_id,
            "item_id": happened.item_id,
            "output_index": happened.output_index,
            "content_index": 0,
        }
        if isinstance(happened, OutputAudio):
            if self._transport == "webrtc":  # there it is on the media track
                return []
            pieces = self._spoken.push(happened.item_id, happened.pcm, self.terms.spoken_as)
            return [event("response.output_audio.delta", **ids, delta=piece) for piece in pieces]
        kind = "text" if happened.modality == "text" else "audio_transcript"
        return [event(f"response.output_{kind}.delta", **ids, delta=happened.delta)]

    def _playout(self, happened: PlayoutStarted | PlayoutStopped | PlayoutCleared) -> list[Json]:
        if self._transport == "websocket":  # its client owns the play-out clock
            return []
        match happened:
            case PlayoutStarted():
                stage = "started"
            case PlayoutStopped():
                stage = "stopped"
            case PlayoutCleared():
                stage = "cleared"
            case _:
                assert_never(happened)
        return [event(f"output_audio_buffer.{stage}", response_id=happened.response_id)]


def _of_conversation(
    happened: ItemAdded | ItemDone | ItemTruncated | ItemDeleted | ItemRetrieved,
) -> Json:
    match happened:
        case ItemAdded(item, previous):
            return _item("conversation.item.added", item_json(item), previous)
        case ItemDone(item, previous):
            return _item("conversation.item.done", item_json(item), previous)
        case ItemTruncated(item_id, audio_end_ms):
            ids: Json = {"item_id": item_id, "content_index": 0}
            return event("conversation.item.truncated", **ids, audio_end_ms=audio_end_ms)
        case ItemDeleted(item_id):
            return event("conversation.item.deleted", item_id=item_id)
        case ItemRetrieved(item):
            return event("conversation.item.retrieved", item=item_json(item))
        case _:
            assert_never(happened)


def _speech(stage: str, **fields: Any) -> Json:
    return event(f"input_audio_buffer.speech_{stage}", **fields)


def _item(name: str, item: Json, previous_item_id: str | None) -> Json:
    return event(name, previous_item_id=previous_item_id, item=item)
