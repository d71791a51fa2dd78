"""Encodes responses, the input and the items of the conversation as server events. Several
responses may be open, each in its own audio format. No I/O."""

from dataclasses import dataclass, field
from typing import assert_never

from core.conversation.events import (
    FormatName,
    FunctionCallArgumentsDelta,
    HypothesisChanged,
    InputCleared,
    InputCommitted,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    ItemTruncated,
    McpCallArgumentsDelta,
    McpCallProgress,
    Modality,
    OutputAudioDelta,
    OutputItemAdded,
    OutputItemDone,
    OutputTextDelta,
    ResponseCreated,
    ResponseDone,
    SpeechDiscarded,
    SpeechStarted,
    SpeechStopped,
    TimeoutTriggered,
    TranscriptionCompleted,
    TranscriptionFailed,
)
from core.conversation.items import FunctionCallItem, MessageItem
from signaling.realtime.protocol.audio_format import OutputAudioEncoder
from signaling.realtime.protocol.server_events import (
    TRANSCRIPTION,
    Json,
    event,
    item_event,
    item_json,
    part_json,
    response_json,
    transcription_completed,
)
from signaling.realtime.session.settings import SessionConfiguration

ResponseEvent = (
    ResponseCreated
    | OutputItemAdded
    | OutputTextDelta
    | OutputAudioDelta
    | FunctionCallArgumentsDelta
    | McpCallArgumentsDelta
    | McpCallProgress
    | OutputItemDone
    | ResponseDone
)
"Session events of a response."

ARGUMENTS = "response.function_call_arguments"
"Common beginning of two event types."


@dataclass(frozen=True, slots=True)
class _OpenResponse:
    """State of a response that is not done yet."""

    modality: Modality = "audio"
    in_conversation: bool = True
    output_format: FormatName | None = None
    "Audio format of the response; None: that of the session when the audio begins."
    audio_encoder: OutputAudioEncoder = field(default_factory=OutputAudioEncoder)


class ResponseEventEncoder:
    """Encodes the response events of one connection. `sends_audio`: audio goes out as events;
    otherwise it is on the media track."""

    def __init__(self, conversation_id: str, *, sends_audio: bool) -> None:
        self._conversation_id, self._sends_audio = conversation_id, sends_audio
        self._open_responses: dict[str, _OpenResponse] = {}

    def encode(
        self, session_event: ResponseEvent, configuration: SessionConfiguration
    ) -> list[Json]:
        """Returns the server events for one session event. `configuration`: the session's
        configuration now."""
        match session_event:
            case ResponseCreated(response_id=response_id, modality=modality, parameters=parameters):
                response = _OpenResponse(
                    modality, parameters.in_conversation, parameters.audio_format
                )
                self._open_responses[response_id] = response
                return [self._response("created", session_event, configuration)]
            case ResponseDone(response_id=response_id):
                self._open_responses.pop(response_id, None)
                return [self._response("done", session_event, configuration)]
            case OutputItemAdded():
                return self._added(session_event)
            case OutputItemDone():
                return self._done(session_event)
            case OutputTextDelta(modality=modality, delta=delta):
                kind = "text" if modality == "text" else "audio_transcript"
                return [
                    event(f"response.output_{kind}.delta", **_part_ids(session_event), delta=delta)
                ]
            case OutputAudioDelta():
                return self._audio(session_event, configuration)
            case FunctionCallArgumentsDelta(call_id=call_id, delta=delta):
                return [
                    event(f"{ARGUMENTS}.delta", **_ids(session_event), call_id=call_id, delta=delta)
                ]
            case McpCallArgumentsDelta(delta=delta):
                return [
                    event("response.mcp_call_arguments.delta", **_ids(session_event), delta=delta)
                ]
            case McpCallProgress():
                return _mcp_call_events(session_event)
            case _:
                assert_never(session_event)

    def _response(
        self,
        stage: str,
        session_event: ResponseCreated | ResponseDone,
        configuration: SessionConfiguration,
    ) -> Json:
        response = response_json(session_event, self._conversation_id, configuration)
        return event(f"response.{stage}", response=response)

    def _added(self, session_event: OutputItemAdded) -> list[Json]:
        in_response, in_conversation = self._item_events("added", session_event)
        if not isinstance(session_event.item, MessageItem):
            return [in_response, *in_conversation]
        ids = {**_item_ids(session_event), "content_index": 0}
        part = part_json(self._response_state(session_event.response_id).modality, "")
        part_event = event("response.content_part.added", **ids, part=part)
        return [in_response, *in_conversation, part_event]

    def _done(self, session_event: OutputItemDone) -> list[Json]:
        """Returns the events that end an output item."""
        in_response, in_conversation = self._item_events("done", session_event)
        match session_event.item:
            case MessageItem(text=text):
                content = self._content_done(session_event, text)
                return [*content, in_response, *in_conversation]
            case FunctionCallItem(status="completed") as call:
                of_call: Json = {**_item_ids(session_event), "call_id": call.call_id}
                done_event = event(f"{ARGUMENTS}.done", **of_call, name=call.name)
                arguments = {**done_event, "arguments": call.arguments}
                return [arguments, in_response, *in_conversation]
            case _:  # no `arguments.done`: a client would run the call, and this one was cut off
                return [in_response, *in_conversation]

    def _item_events(
        self, stage: str, session_event: OutputItemAdded | OutputItemDone
    ) -> tuple[Json, list[Json]]:
        """Returns the item's event in the response, and those in the conversation if it belongs
        there."""
        out = item_json(session_event.item)
        ids: Json = {
            "response_id": session_event.response_id,
            "output_index": session_event.output_index,
        }
        in_response = event(f"response.output_item.{stage}", **ids, item=out)
        if not self._response_state(session_event.response_id).in_conversation:
            return in_response, []
        return in_response, [item_event(stage, out, session_event.previous_item_id)]

    def _content_done(self, done: OutputItemDone, text: str) -> list[Json]:
        """Returns the events that end the text and the audio of an item."""
        response = self._response_state(done.response_id)
        ids = {**_item_ids(done), "content_index": 0}
        closed = event("response.content_part.done", **ids, part=part_json(response.modality, text))
        if response.modality == "text":
            return [event("response.output_text.done", **ids, text=text), closed]
        pieces = response.audio_encoder.finish(done.item.id)
        rest = [event("response.output_audio.delta", **ids, delta=piece) for piece in pieces]
        sound = [event("response.output_audio.done", **ids)] if done.has_audio else []
        return [
            *rest,
            *sound,
            event("response.output_audio_transcript.done", **ids, transcript=text),
            closed,
        ]

    def _audio(
        self, session_event: OutputAudioDelta, configuration: SessionConfiguration
    ) -> list[Json]:
        if not self._sends_audio:
            return []
        response = self._response_state(session_event.response_id)
        pieces = response.audio_encoder.push(
            session_event.item_id,
            session_event.pcm,
            response.output_format or configuration.output_format,
        )
        ids = _part_ids(session_event)
        return [event("response.output_audio.delta", **ids, delta=piece) for piece in pieces]

    def _response_state(self, response_id: str) -> _OpenResponse:
        return self._open_responses.get(response_id) or _OpenResponse()


def _mcp_call_events(session_event: McpCallProgress) -> list[Json]:
    at: Json = {"item_id": session_event.item_id, "output_index": session_event.output_index}
    stage = event(f"response.mcp_call.{session_event.stage}", **at)
    if session_event.stage != "in_progress":
        return [stage]
    whole: Json = {"arguments": session_event.arguments}
    return [event("response.mcp_call_arguments.done", **_ids(session_event), **whole), stage]


def _ids(
    session_event: OutputTextDelta
    | OutputAudioDelta
    | FunctionCallArgumentsDelta
    | McpCallArgumentsDelta
    | McpCallProgress,
) -> Json:
    return {
        "response_id": session_event.response_id,
        "item_id": session_event.item_id,
        "output_index": session_event.output_index,
    }


def _part_ids(session_event: OutputTextDelta | OutputAudioDelta) -> Json:
    return {**_ids(session_event), "content_index": 0}


def _item_ids(session_event: OutputItemAdded | OutputItemDone) -> Json:
    return {
        "response_id": session_event.response_id,
        "item_id": session_event.item.id,
        "output_index": session_event.output_index,
    }


# Encodes input and the items of the conversation as server events. No I/O.

InputEvent = (
    SpeechStarted
    | SpeechStopped
    | SpeechDiscarded
    | TimeoutTriggered
    | InputCommitted
    | InputCleared
)
TranscriptionEvent = HypothesisChanged | TranscriptionCompleted | TranscriptionFailed
ConversationEvent = ItemAdded | ItemDone | ItemTruncated | ItemDeleted | ItemRetrieved


class InputEventEncoder:
    """Encodes the input events of one connection. It remembers where speech began."""

    def __init__(self) -> None:
        self._speech_start_ms: int | None = None

    def encode(self, session_event: InputEvent) -> list[Json]:
        """Returns the server events for one event of the input."""
        match session_event:
            case SpeechStarted(item_id, start_ms):
                self._speech_start_ms = start_ms
                return [_speech("started", item_id=item_id, audio_start_ms=start_ms)]
            case SpeechStopped(item_id, end_ms):
                self._speech_start_ms = None
                return [_speech("stopped", item_id=item_id, audio_end_ms=end_ms)]
            # the protocol has no event for it: the speech ends where it began
            case SpeechDiscarded(item_id):
                began_ms, self._speech_start_ms = self._speech_start_ms, None
                if began_ms is None:
                    return []
                return [_speech("stopped", item_id=item_id, audio_end_ms=began_ms)]
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
                assert_never(session_event)


def transcription(
    session_event: TranscriptionEvent, configuration: SessionConfiguration
) -> list[Json]:
    """Encodes events of transcription; returns nothing if the client asked for no transcripts."""
    if not configuration.settings.transcribes:
        return []
    match session_event:
        case HypothesisChanged(item_id, stable, unstable, audio_ms):
            if "earshot.hypothesis" not in configuration.include:
                return []
            words: Json = {"stable": stable, "unstable": unstable}
            return [event("earshot.hypothesis", item_id=item_id, **words, audio_ms=audio_ms)]
        case TranscriptionCompleted():
            return transcription_completed(session_event)
        case TranscriptionFailed(item_id, code, message, index):
            error = {"type": "server_error", "code": code, "message": message, "param": None}
            ids: Json = {"item_id": item_id, "content_index": index}
            return [event(f"{TRANSCRIPTION}.failed", **ids, error=error)]
        case _:
            assert_never(session_event)


def conversation_event(session_event: ConversationEvent) -> Json:
    """Returns the server event for a change of the conversation."""
    match session_event:
        case ItemAdded(item, previous):
            return item_event("added", item_json(item), previous)
        case ItemDone(item, previous):
            return item_event("done", item_json(item), previous)
        case ItemTruncated(item_id, audio_end_ms):
            ids: Json = {"item_id": item_id, "content_index": 0}
            return event("conversation.item.truncated", **ids, audio_end_ms=audio_end_ms)
        case ItemDeleted(item_id):
            return event("conversation.item.deleted", item_id=item_id)
        case ItemRetrieved(item):
            return event("conversation.item.retrieved", item=item_json(item))
        case _:
            assert_never(session_event)


def _speech(stage: str, **fields: object) -> Json:
    return event(f"input_audio_buffer.speech_{stage}", **fields)
