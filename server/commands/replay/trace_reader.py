"""Reads a trace back: the settings, audio, client actions and turns of each session."""

from base64 import b64decode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import numpy as np

from core.audio import ASR_RATE_HZ, Pcm, samples_to_ms
from core.errors import RequestError
from core.ports import UNKNOWN_LOCATION, DeviceLocation
from pipeline.shared.settings import PlayoutPacing, SessionSettings
from pipeline.shared.trace import (
    CONFIGURED,
    INPUT_AUDIO,
    INPUT_AUDIO_OMITTED,
    TOOL_ANSWERED,
    TOOL_CALLED,
)

TraceRecord = Mapping[str, Any]
"One line of a trace, decoded from JSON. It has at least `session` and `event`."


@dataclass(frozen=True, slots=True)
class RecordedTurn:
    """One turn of a trace."""

    status: str
    "Outcome of the turn, one of `pipeline.shared.turn.TurnStatus`."
    transcript: str
    "Words of the user; empty if the trace has no words."
    answer: str
    "Words of the answer; empty if the trace has no words."
    stages_ms: Mapping[str, float]
    "Name of a stage, such as `llm` -> its duration in ms."
    latency_ms: float | None
    "Time from the end of speech to the first audio of the answer; None if there was none."
    marks_ms: Mapping[str, float] = field(default_factory=dict[str, float])
    "Moment -> ms from the end of speech."

    @property
    def words(self) -> tuple[str, str]:
        """Transcript and answer, which are compared with a replay."""
        return self.transcript, self.answer


@dataclass(frozen=True, slots=True)
class RecordedTruncation:
    """Message of a client that plays by itself: how much of an answer it has played."""

    audio_end_ms: int
    "Length of the answer that was played, in ms."


@dataclass(frozen=True, slots=True)
class RecordedAction:
    """Action of the client, at a position in its audio."""

    at_sample: int
    "Number of input samples that the client had sent before."
    action: SessionSettings | RecordedTruncation | Literal["commit", "respond", "clear", "cancel"]
    """New settings; how much of an answer was played; commit of the input or request for a response
    by a client without turn detection; clearing of the input; cancelling of the response."""


@dataclass(frozen=True, slots=True)
class RecordedToolCall:
    """One call of a server-side tool, with its result."""

    name: str
    arguments: Mapping[str, Any]
    output: str
    "Result as JSON, as the model received it."


@dataclass(frozen=True, slots=True)
class RecordedSession:
    """One session of a trace."""

    id: str
    "Id of the session in the trace."
    settings: SessionSettings | None
    "Settings at the beginning; None if the trace has none."
    pcm: Pcm = field(repr=False)
    "Received audio, int16 at 16 kHz; empty if the trace has no audio."
    actions: Sequence[RecordedAction]
    "Actions of the client, in order."
    turns: Sequence[RecordedTurn]
    "Turns in the order in which they began."
    has_words: bool
    "True: the trace holds transcripts and answers, not only times."
    is_cut: bool
    "True: the session went on longer than its recorded audio."
    paced_by: PlayoutPacing = "server"
    "Side that paced the answers' audio: server (WebRTC, boards) or client (WebSocket)."
    place: DeviceLocation = UNKNOWN_LOCATION
    "Room and device of the user."
    tool_calls: Sequence[RecordedToolCall] = ()
    "Calls with results, in the order of the results."

    @property
    def sound_s(self) -> float:
        """Length of the received audio, in seconds."""
        return samples_to_ms(len(self.pcm), ASR_RATE_HZ) / 1000


def read(path: Path) -> list[RecordedSession]:
    """Reads all sessions, in the order in which they began. Raises RequestError that names the
    line."""
    sessions: dict[str, list[TraceRecord]] = {}
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                record = _decode_record(line, f"{path}:{number}")
                sessions.setdefault(record["session"], []).append(record)
    except OSError as error:
        raise RequestError(f"{path}: {error.strerror or error}", code="unreadable") from error
    return [parse_session(name, records) for name, records in sessions.items()]


def parse_session(name: str, records: Sequence[TraceRecord]) -> RecordedSession:
    """Builds a session from its records. Raises RequestError for invalid settings or audio."""
    chunks: list[Pcm] = []
    actions: list[RecordedAction] = []
    first_configuration: TraceRecord | None = None
    settings: SessionSettings | None = None
    samples = 0
    for record in records:
        if record["event"] == INPUT_AUDIO:
            chunks.append(_decode_audio(record, name))
            samples += len(chunks[-1])
        elif record["event"] == CONFIGURED:
            settings = _read_settings(record, name)
            if first_configuration is None:
                first_configuration = record
            else:
                actions.append(RecordedAction(samples, settings))
        elif (
            action := _client_action(record, settings, _read_pacing(first_configuration, name))
        ) is not None:
            actions.append(RecordedAction(samples, action))
    while actions and actions[-1] == RecordedAction(
        samples, "cancel"
    ):  # closing the session also cancels its response
        actions.pop()
    return RecordedSession(
        name,
        None if first_configuration is None else _read_settings(first_configuration, name),
        np.concatenate(chunks) if chunks else np.zeros(0, np.int16),
        actions,
        turns(records),
        has_words=any("transcript" in r for r in records if r["event"] == "Transcribed"),
        is_cut=any(record["event"] == INPUT_AUDIO_OMITTED for record in records),
        paced_by=_read_pacing(first_configuration, name),
        place=_read_location(first_configuration, name),
        tool_calls=_tool_calls(records, name),
    )


def turns(records: Iterable[TraceRecord]) -> list[RecordedTurn]:
    """Returns the turns in the order in which their input was committed or their response
    requested. The trace has them in another order: each is written when the audio of its answer
    ends."""
    positions: dict[str, float] = {}
    transcripts: dict[str, str] = {}
    answers: dict[str, list[str]] = {}
    turn_records: list[TraceRecord] = []
    for position, record in enumerate(records):
        match record["event"]:
            case "InputCommitted":
                positions.setdefault(str(record.get("item_id")), position)
            case "ResponseCreated":
                positions.setdefault(str(record.get("response_id")), position)
            case "Transcribed":
                transcripts[record["item_id"]] = str(record.get("transcript", "")).strip()
            case "OutputItemDone":
                answers.setdefault(record["response_id"], []).append(_item_text(record.get("item")))
            case "TurnTraced":
                turn_records.append(record)
    turn_records.sort(
        key=lambda record: positions.get(record["item_id"] or record["response_id"] or "", inf)
    )
    return [
        RecordedTurn(
            status=record["status"],
            transcript=transcripts.get(record["item_id"] or "", ""),
            answer=" ".join(filter(None, answers.get(record["response_id"] or "", ()))),
            stages_ms={
                stage["stage"]: stage["end_ms"] - stage["start_ms"] for stage in record["stages"]
            },
            latency_ms=record["response_latency_ms"],
            marks_ms=record.get("marks") or {},
        )
        for record in turn_records
    ]


def _client_action(
    record: TraceRecord, settings: SessionSettings | None, paced_by: PlayoutPacing
) -> RecordedTruncation | Literal["commit", "respond", "clear", "cancel"] | None:
    """Returns the client action that caused a record; None if there is none."""
    is_manual = settings is not None and settings.turn_detection is None
    match record["event"]:
        case "InputCommitted" if is_manual:
            return "commit"
        case "ResponseCreated" if settings is not None and not _responds_to_turns(settings):
            return "respond"
        case "InputCleared":
            return "clear"
        case "ResponseDone" if _is_client_cancelled(record):
            return "cancel"
        # a server-paced session truncates its answers by itself
        case "ItemTruncated" if paced_by == "client":
            return RecordedTruncation(int(record["audio_end_ms"]))
    return None


def _is_client_cancelled(record: TraceRecord) -> bool:
    """Returns True if the client cancelled a response in the conversation. Out-of-band responses
    are not requested again."""
    if record.get("reason") != "client_cancelled":
        return False
    return bool((record.get("terms") or {}).get("in_conversation", True))


def _tool_calls(records: Iterable[TraceRecord], name: str) -> list[RecordedToolCall]:
    """Returns the tool calls with their results. Raises RequestError for an invalid one."""
    calls: dict[str, TraceRecord] = {}
    results: list[RecordedToolCall] = []
    try:
        for record in records:
            if record["event"] == TOOL_CALLED:
                calls[record["call_id"]] = record
            elif record["event"] == TOOL_ANSWERED and (call := calls.get(record["call_id"])):
                arguments = msgspec.json.decode(call["arguments"], type=dict[str, Any])
                results.append(RecordedToolCall(call["name"], arguments, record["output"]))
    except (KeyError, TypeError, msgspec.DecodeError) as error:
        raise RequestError(f"session {name}: an invalid tool call: {error}") from error
    return results


def _responds_to_turns(settings: SessionSettings) -> bool:
    return settings.turn_detection is not None and settings.turn_detection.create_response


def _item_text(item: object) -> str:
    parts = item.get("parts", ()) if isinstance(item, Mapping) else ()
    texts = (part.get("text") or part.get("transcript") or "" for part in parts)
    return " ".join(filter(None, texts)).strip()


def _decode_record(line: bytes, where: str) -> TraceRecord:
    try:
        record: object = msgspec.json.decode(line)
    except msgspec.DecodeError as error:
        raise RequestError(f"{where}: not JSON: {error}", code="invalid_trace") from error
    if not (isinstance(record, dict) and {"session", "event"} <= record.keys()):
        raise RequestError(f"{where}: not a record of a trace", code="invalid_trace")
    return record


def _decode_audio(record: TraceRecord, name: str) -> Pcm:
    try:
        return np.frombuffer(b64decode(record["pcm"], validate=True), "<i2").astype(np.int16)
    except (KeyError, ValueError, TypeError) as error:
        raise RequestError(f"session {name}: invalid audio: {error}") from error


def _read_settings(record: TraceRecord, name: str) -> SessionSettings:
    """Returns the settings without the wake word, because the trace holds only the audio after
    it."""
    try:
        return replace(msgspec.convert(record["settings"], SessionSettings), wake_word="")
    except (KeyError, msgspec.ValidationError) as error:
        raise RequestError(f"session {name}: invalid settings: {error}") from error


def _read_pacing(record: TraceRecord | None, name: str) -> PlayoutPacing:
    """Returns which side paced the session. Older traces do not say: they count as paced by the
    server."""
    paced_by = (record or {}).get("paced_by", "server")
    if paced_by not in get_args(PlayoutPacing):
        raise RequestError(f"session {name}: paced by {paced_by!r}, not by server or client")
    return "client" if paced_by == "client" else "server"


def _read_location(record: TraceRecord | None, name: str) -> DeviceLocation:
    try:
        return msgspec.convert((record or {}).get("place", {}), DeviceLocation)
    except msgspec.ValidationError as error:
        raise RequestError(f"session {name}: an invalid place: {error}") from error
