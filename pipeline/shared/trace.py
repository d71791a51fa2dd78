"""Trace of a session: one record per event, with times and sizes; words and sound only if asked
for.

A trace with sound holds what `earshot replay` needs: the session's settings, who paces its playout,
the microphone's audio, and all events for the client, in the order in which they happened. A trace
with words also holds the outputs of tools.
"""

import dataclasses
from base64 import b64encode
from collections.abc import Mapping

import numpy as np

from core.audio import ASR_RATE_HZ, AudioFrame, Pcm, ms_to_samples
from core.conversation.events import (
    ErrorEvent,
    FunctionCallArgumentsDelta,
    HypothesisChanged,
    McpCallArgumentsDelta,
    McpCallProgress,
    McpListToolsProgress,
    OutputAudioDelta,
    OutputTextDelta,
    ServerToolItem,
    SessionEvent,
    TranscriptionCompleted,
    TurnTimeline,
    WakeStateChanged,
)
from core.conversation.items import FunctionCallItem, FunctionOutputItem, Item
from core.ports import UNKNOWN_LOCATION, Clock, DeviceLocation, TraceSink
from pipeline.shared.settings import PlayoutPacing, SessionSettings

WORDS = (
    "transcript",
    "stable",
    "unstable",
    "delta",
    "item",
    "output",
    "message",
    "terms",
    "speaker",
)
"Fields that hold what people said, or who they are. Only a trace with words has them."

PRIVATE_SETTINGS = ("instructions", "prompt", "keywords", "prefix", "client_tools")
"Settings that a client wrote. Only a trace with words or sound has them."

SECRET_SETTINGS = ("mcp_servers",)
"Settings with addresses and headers that hold a client's keys. No trace has them."

CHUNK_MS = 1000
"Audio in one record, 43 kB of base64; less where another record comes between."

MAX_SOUND_MS = 600_000
"Most audio of one session, 26 MB: an open microphone must not fill the disk."

CONFIGURED, INPUT_AUDIO, INPUT_AUDIO_OMITTED = "Configured", "InputAudio", "InputAudioOmitted"
"""Names of records of the input: settings, audio of the microphone, and the place from which audio
is left out (MAX_SOUND_MS)."""
TOOL_CALLED, TOOL_ANSWERED = "ToolCalled", "ToolAnswered"
"Names of records that are not events: a call of the server's own tool, and its output."

RECORD_NAMES: Mapping[type, str] = {
    ErrorEvent: "Failed",
    FunctionCallArgumentsDelta: "CallArguments",
    McpCallArgumentsDelta: "McpArguments",
    McpCallProgress: "McpCalled",
    McpListToolsProgress: "McpListing",
    OutputTextDelta: "OutputText",
    TranscriptionCompleted: "Transcribed",
    TurnTimeline: "TurnTraced",
    WakeStateChanged: "WakeChanged",
}
"""Record names of events whose class was renamed after 0.2.0. People keep trace files, so the names
of records stay."""

FIELD_NAMES: Mapping[str, str] = {"parameters": "terms"}
"The same for fields of events."


class SessionTrace:
    """Writes the input and the events of one session, so that it can be studied and replayed.

    `words`: include what people said. `sound`: include the microphone's audio.
    """

    def __init__(
        self,
        sink: TraceSink,
        session_id: str,
        clock: Clock,
        *,
        words: bool,
        sound: bool = False,
    ) -> None:
        self._sink, self._session_id, self._clock = sink, session_id, clock
        self._words, self._sound = words, sound
        self._began_at = clock.now()
        self._waiting: list[Pcm] = []
        self._input_samples = 0
        "Samples so far, including those that are not written yet."
        self._written_samples = 0
        "Samples that are written."
        self._is_full = False
        "True once MAX_SOUND_MS is reached: no more audio is recorded."

    def settings(
        self,
        settings: SessionSettings,
        paced_by: PlayoutPacing = "server",
        place: DeviceLocation = UNKNOWN_LOCATION,
    ) -> None:
        """Records the settings when the session begins, and whenever they change."""
        is_private = self._words or self._sound
        excluded = SECRET_SETTINGS if is_private else (*SECRET_SETTINGS, *PRIVATE_SETTINGS)
        fields_by_name = dataclasses.asdict(settings)
        recorded = {key: value for key, value in fields_by_name.items() if key not in excluded}
        fields: dict[str, object] = {
            "began_at": self._clock.wall().isoformat(),
            "settings": recorded,
        }
        if is_private:
            fields["place"] = dataclasses.asdict(place)
        self._record(CONFIGURED, {**fields, "paced_by": paced_by})

    def _tool_item(self, item: Item) -> None:
        """Records a call of the server's own tool, or its output. Only with words."""
        match item:
            case FunctionCallItem(call_id=call_id, name=name, arguments=arguments) if self._words:
                fields = {"call_id": call_id, "name": name, "arguments": arguments}
                self._record(TOOL_CALLED, fields)
            case FunctionOutputItem(call_id=call_id, output=output) if self._words:
                self._record(TOOL_ANSWERED, {"call_id": call_id, "output": output})
            case _:
                pass

    def frame(self, frame: AudioFrame) -> None:
        """Records live audio, 16 kHz, in the order in which the session takes it."""
        if not self._sound or self._is_full:
            return
        self._waiting.append(frame.pcm.copy())
        self._input_samples += len(frame.pcm)
        if self._input_samples - self._written_samples >= ms_to_samples(CHUNK_MS, ASR_RATE_HZ):
            self._write_sound()
        if self._input_samples >= ms_to_samples(MAX_SOUND_MS, ASR_RATE_HZ):
            self._is_full = True
            self._record(INPUT_AUDIO_OMITTED, {"start": self._input_samples})

    def write(self, event: SessionEvent) -> None:
        """Records an event for the client."""
        if isinstance(event, OutputAudioDelta):
            return  # one per frame; playout events tell when sound was played
        if isinstance(event, ServerToolItem):
            self._tool_item(event.item)
            return
        if isinstance(event, HypothesisChanged) and not self._words:
            return
        kind = type(event)
        self._record(RECORD_NAMES.get(kind, kind.__name__), self._fields(event))

    def close(self) -> None:
        """Writes the sound that is left, at the end of the session."""
        self._write_sound()

    def _record(self, event: str, fields: Mapping[str, object]) -> None:
        """Writes a record. Waiting sound is written first, so that the records stay in order."""
        self._write_sound()
        self._put(event, fields)

    def _write_sound(self) -> None:
        if not self._waiting:
            return
        pcm, start = np.concatenate(self._waiting), self._written_samples
        self._waiting.clear()
        self._written_samples = start + len(pcm)
        sound = b64encode(pcm.astype("<i2").tobytes()).decode()
        self._put(INPUT_AUDIO, {"start": start, "pcm": sound})

    def _put(self, event: str, fields: Mapping[str, object]) -> None:
        t_ms = round(1000 * (self._clock.now() - self._began_at), 1)
        self._sink.write({"t_ms": t_ms, "session": self._session_id, "event": event, **fields})

    def _fields(self, event: SessionEvent) -> dict[str, object]:
        fields = {FIELD_NAMES.get(k, k): v for k, v in dataclasses.asdict(event).items()}
        return fields if self._words else {k: v for k, v in fields.items() if k not in WORDS}
