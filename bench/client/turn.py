"""State of a turn as a client knows it from the server's events. No I/O, no clock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bench.client.realtime import ReceivedEvent, error_message

Status = Literal["answered", "rejected", "failed", "cancelled", "unanswered"]
"""Outcome of a turn. rejected: the server took the sound for noise. unanswered: no answer came in
time."""

TRANSCRIPTION = "conversation.item.input_audio_transcription"
"Common prefix of the types of transcription events."


@dataclass(frozen=True, slots=True)
class StageTimes:
    """One stage of a turn as the server reports it; 0 ms is the end of speech."""

    name: str
    start_ms: float
    end_ms: float
    is_speculative: bool = False
    "True if it began before the turn was over, by speculation."

    @property
    def took_ms(self) -> float:
        return self.end_ms - self.start_ms


@dataclass(slots=True)
class TurnLog:
    """State of a turn, updated by its events in order. Times are in seconds.

    A second utterance within the turn resets the answer.
    """

    stable: str = ""
    unstable: str = ""
    "Words of the partial transcript: `stable` ones stay, `unstable` ones may change."
    transcripts: dict[str, str] = field(default_factory=dict[str, str])
    """Item id -> its transcript. A pause can split a recording into two items, which the server may
    join again."""
    reply: str = ""
    "Text of the answer so far."
    status: Literal["", "completed", "failed", "cancelled", "incomplete"] = ""
    "Status of the latest response; empty while there is none or it is in progress."
    is_rejected: bool = False
    "True if the server took the newest utterance for noise."
    error: str = ""
    has_server_times: bool = False
    "True once the server reported the timing of the latest answer: its last event of a turn."
    stages: Sequence[StageTimes] = ()
    server_latency_ms: float | None = None
    is_speech: bool = False
    "True while the server detects speech, or has not decided yet whether it was an utterance."
    is_playing: bool = False
    has_played: bool = False
    output_item_id: str = ""
    "Item of the response that is spoken; empty when nothing is spoken."
    first_words_at: float | None = None
    "Time when the first words of a transcript arrived."
    transcript_at: float | None = None
    "Time when the transcript was complete."
    first_reply_at: float | None = None
    "Time when the first words of the answer arrived."
    last_at: float = 0.0
    "Time when the last event arrived."
    _response_id: Any = None
    _speech_start_ms: Any = None
    _item_id: Any = None
    "Item of the newest utterance."
    _has_hypotheses: bool = False

    @property
    def transcript(self) -> str:
        return " ".join(text for text in self.transcripts.values() if text)

    def add(self, received: ReceivedEvent) -> None:
        """Updates the state by one event."""
        event, self.last_at = received.event, received.at
        kind = received.type
        if kind.startswith("input_audio_buffer."):
            self._on_input(kind, event)
        elif kind.startswith("output_audio_buffer."):
            self._on_playout(kind, event)
        elif kind.startswith(TRANSCRIPTION) or kind == "earshot.hypothesis":
            self._on_transcription(kind, event, received.at)
        elif kind == "conversation.item.deleted":  # a later item repeats it, with more words
            self.transcripts.pop(str(event.get("item_id")), None)
        elif kind.startswith("response."):
            self._on_response(kind, event, received.at)
        elif kind == "earshot.turn":
            self._on_turn_report(_object(event.get("turn")))
        elif kind == "error":
            self.error = error_message(event)

    def _on_input(self, kind: str, event: Mapping[str, object]) -> None:
        match kind.rpartition(".")[2]:
            case "speech_started":
                self.is_speech = True
                self._speech_start_ms = event.get("audio_start_ms")
                self._item_id = event.get("item_id")
            case "speech_stopped":  # nothing is committed after speech of length 0
                self.is_speech = event.get("audio_end_ms") != self._speech_start_ms
            case "committed":  # earlier answers answered only a part of the turn
                self.is_speech = False
                self._item_id = event.get("item_id")
                self._forget_answer()
            case "cleared":
                self.is_speech = False

    def _forget_answer(self) -> None:
        self.reply, self.status, self.error = "", "", ""
        self.is_rejected = self.is_playing = self.has_played = False
        self.output_item_id = ""
        self.has_server_times, self.stages, self.server_latency_ms = False, (), None
        self.transcript_at = self.first_reply_at = None

    def _on_transcription(self, kind: str, event: Mapping[str, object], at: float) -> None:
        if kind == "earshot.hypothesis":
            self.stable, self.unstable = str(event.get("stable")), str(event.get("unstable"))
            self._has_hypotheses = True
        elif kind.endswith(".delta") and not self._has_hypotheses:  # hypotheses come before deltas
            self.stable, self.unstable = self.stable + str(event.get("delta") or ""), ""
        elif kind.endswith(".completed"):
            item_id, text = str(event.get("item_id")), str(event.get("transcript") or "").strip()
            self.transcripts[item_id] = text
            self.stable, self.unstable, self.transcript_at = "", "", at
        elif kind.endswith(".failed"):
            self.error = error_message(event)
        if self.first_words_at is None and (self.stable or self.unstable or self.transcript):
            self.first_words_at = at

    def _on_playout(self, kind: str, event: Mapping[str, object]) -> None:
        if event.get("response_id", self._response_id) == self._response_id:
            self.is_playing = kind.endswith(".started")
            self.has_played = self.has_played or not self.is_playing

    def _on_response(self, kind: str, event: Mapping[str, Any], at: float) -> None:
        response = _object(event.get("response"))
        response_id = event.get("response_id", response.get("id"))
        if kind == "response.created":
            self._on_response_created(response_id)
        elif response_id != self._response_id:
            return  # late event of an answer that was cut short
        elif kind in {"response.output_text.delta", "response.output_audio_transcript.delta"}:
            self.reply += str(event.get("delta", ""))
            self.first_reply_at = at if self.first_reply_at is None else self.first_reply_at
        elif kind == "response.output_item.added":
            item = _object(event.get("item"))
            if item.get("type") == "message":
                self.output_item_id = str(item.get("id", ""))
        elif kind == "response.done":
            self.status = response.get("status", "completed")
            details = _object(response.get("status_details"))
            if self.status == "failed":
                self.error = error_message(details)

    def _on_response_created(self, response_id: object) -> None:
        self._response_id = response_id
        self.reply, self.status = "", ""
        self.is_playing = self.has_played = False
        self.output_item_id = ""
        self.first_reply_at = None

    def _on_turn_report(self, turn: Mapping[str, Any]) -> None:
        if turn.get("response_id") not in (None, self._response_id):
            return  # report on an answer that was cut short, sent when its playout ended
        is_newest = turn.get("item_id", self._item_id) == self._item_id
        if turn.get("status") == "rejected" and is_newest:
            self.is_rejected, self.is_speech = True, False
        self.has_server_times = True
        self.server_latency_ms = turn.get("response_latency_ms")
        self.stages = tuple(
            StageTimes(
                str(stage["stage"]),
                float(stage["start_ms"]),
                float(stage["end_ms"]),
                bool(stage.get("is_speculative", False)),
            )
            for stage in turn.get("stages", ())
        )

    def is_over(self, *, has_sound_events: bool) -> bool:
        """Returns True when no more events are expected.

        has_sound_events: True if the server reports the end of playout.
        """
        if self.is_speech or self.is_playing:
            return False
        if self.is_rejected:
            return True
        is_played = self.has_played or not has_sound_events
        is_silent = not self.output_item_id or self.status != "completed"
        return bool(self.status) and (is_played or is_silent)

    def outcome(self, *, has_audio: bool) -> Status:
        """Returns the outcome of the turn. has_audio: the client received audible audio."""
        if self.is_rejected:
            return "rejected"
        if self.status in {"failed", "cancelled"}:
            return "failed" if self.status == "failed" else "cancelled"
        return "answered" if self.reply or has_audio else "unanswered"


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
