"""What is heard, and what becomes of the conversation's items, as server events. No I/O."""

from typing import Any, assert_never

from core.events import (
    HypothesisChanged,
    InputCleared,
    InputCommitted,
    ItemAdded,
    ItemDeleted,
    ItemDone,
    ItemRetrieved,
    ItemTruncated,
    SpeechDiscarded,
    SpeechStarted,
    SpeechStopped,
    TimeoutTriggered,
    TranscriptionCompleted,
    TranscriptionFailed,
)
from signaling.realtime.protocol.server_events import (
    TRANSCRIPTION,
    Json,
    event,
    item_json,
    listed,
    transcription_completed,
)
from signaling.realtime.session.settings import SessionConfiguration

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
    """Of one connection: remembers where speech began."""

    def __init__(self) -> None:
        self._speech_start_ms: int | None = None

    def told(self, happened: InputEvent) -> list[Json]:
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


def transcription(happened: TranscriptionEvent, terms: SessionConfiguration) -> list[Json]:
    """Nothing for a client that asked for no transcripts."""
    if not terms.settings.transcribes:
        return []
    match happened:
        case HypothesisChanged(item_id, stable, unstable, audio_ms):
            if "earshot.hypothesis" not in terms.include:
                return []
            words: Json = {"stable": stable, "unstable": unstable}
            return [event("earshot.hypothesis", item_id=item_id, **words, audio_ms=audio_ms)]
        case TranscriptionCompleted():
            return transcription_completed(happened)
        case TranscriptionFailed(item_id, code, message, index):
            error = {"type": "server_error", "code": code, "message": message, "param": None}
            ids: Json = {"item_id": item_id, "content_index": index}
            return [event(f"{TRANSCRIPTION}.failed", **ids, error=error)]
        case _:
            assert_never(happened)


def of_conversation(happened: ConversationEvent) -> Json:
    match happened:
        case ItemAdded(item, previous):
            return listed("added", item_json(item), previous)
        case ItemDone(item, previous):
            return listed("done", item_json(item), previous)
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
