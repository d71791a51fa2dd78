"""One run of an ESPHome device: the events that it gets, in the order that it needs.

A run begins when the device asks for one (wake word, button, continued conversation) and ends with
RUN_END. The device has no time limit of its own, so a run that is never ended hangs it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

MAX_TEXT_CHARS = 500
"Most characters of a text for the device's display. Firmware cuts the transcript there."

NO_TEXT = "stt-no-text-recognized"
"Code for a run without words. The Voice Preview Edition shows no error for it."


class PipelineEvent(IntEnum):
    """Events, by their numbers in the protocol (`VoiceAssistantEvent` of api.proto)."""

    ERROR = 0
    RUN_START = 1
    RUN_END = 2
    STT_START = 3
    STT_END = 4
    INTENT_START = 5
    INTENT_END = 6
    TTS_START = 7
    TTS_END = 8
    STT_VAD_START = 11
    STT_VAD_END = 12
    TTS_STREAM_START = 98
    TTS_STREAM_END = 99
    INTENT_PROGRESS = 100


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One event for the device. Values are texts; a boolean is "1" or "0"."""

    event: PipelineEvent
    data: Mapping[str, str] = field(default_factory=dict)


RunPhase = Literal["new", "listening", "hearing", "recognising", "thinking", "speaking", "over"]
"""Progress of a run. listening: no speech yet. recognising: the utterance is over. thinking: its
words are known. speaking: there is sound of the answer."""

_PHASES: tuple[RunPhase, ...] = (
    "new",
    "listening",
    "hearing",
    "recognising",
    "thinking",
    "speaking",
    "over",
)


class VoiceRun:
    """Decides what the device gets. Every method returns the events that follow, possibly none.

    Calls in an unexpected order are allowed: events that were left out are added, and what comes
    too late gives no events.
    """

    def __init__(self, url: str, conversation_id: str, *, has_raw_speaker: bool) -> None:
        """url: address from which the device fetches the answer. has_raw_speaker: the device plays
        sound that it is sent, and fetches none."""
        self._url, self._conversation_id = url, conversation_id
        self._has_raw_speaker = has_raw_speaker
        self.phase: RunPhase = "new"

    @property
    def takes_audio(self) -> bool:
        """True while audio of the microphone belongs to the utterance."""
        return self.phase in ("new", "listening", "hearing")

    @property
    def is_over(self) -> bool:
        """True after RUN_END."""
        return self.phase == "over"

    def start(self) -> list[RunEvent]:
        """Begins the run. The URL of the answer is announced, but not played yet."""
        if not self._advance("listening"):
            return []
        return [
            RunEvent(PipelineEvent.RUN_START, {"url": self._url}),
            RunEvent(PipelineEvent.STT_START),
        ]

    def speech_started(self) -> list[RunEvent]:
        """Notes that the user speaks."""
        if self.phase in ("hearing", "over"):
            return []
        before = self.start()
        if not self._advance("hearing"):
            return []
        return [*before, RunEvent(PipelineEvent.STT_VAD_START)]

    def speech_ended(self) -> list[RunEvent]:
        """Notes that the utterance is over: the device closes its microphone."""
        before = self.speech_started()
        if not self._advance("recognising"):
            return before
        return [*before, RunEvent(PipelineEvent.STT_VAD_END)]

    def transcript(self, text: str) -> list[RunEvent]:
        """Notes the words of the utterance. Without words the run is over."""
        if not text.strip():
            return self.fail(NO_TEXT, "No words were recognised")
        before = self.speech_ended()
        if not self._advance("thinking"):
            return []
        return [
            *before,
            RunEvent(PipelineEvent.STT_END, {"text": text[:MAX_TEXT_CHARS]}),
            RunEvent(PipelineEvent.INTENT_START),
        ]

    def sound_ready(self, text: str) -> list[RunEvent]:
        """Notes the first sound of the answer, from which on the device may play it.

        text: the answer as far as it is known. A device waits at most 2 s from the URL to the first
        sound, so this must not come before the sound exists.
        """
        if not self._advance("speaking"):
            return []
        if self._has_raw_speaker:
            # Sound follows at once, so all that precedes it is sent before the whole text is known.
            return [
                *self._answer(text, continues=False),
                RunEvent(PipelineEvent.TTS_STREAM_START),
            ]
        return [RunEvent(PipelineEvent.INTENT_PROGRESS, {"tts_start_streaming": "1"})]

    def finish(self, text: str, *, continues: bool) -> list[RunEvent]:
        """Ends the run: the answer is complete, though it may still be played.

        text: the whole answer. continues: the device listens again after it has played it.
        """
        has_sound = self.phase == "speaking"
        if not self._advance("over"):
            return []
        if has_sound and self._has_raw_speaker:
            events = [RunEvent(PipelineEvent.TTS_STREAM_END)]
        elif has_sound:
            # Also when it streamed already: older firmware knows only TTS_END, and
            # linux-voice-assistant plays a URL once.
            events = self._answer(text, continues=continues)
        else:
            events = [self._intent_end(continues=False)]
        return [*events, RunEvent(PipelineEvent.RUN_END)]

    def fail(self, code: str, message: str) -> list[RunEvent]:
        """Ends the run with an error."""
        if not self._advance("over"):
            return []
        return [
            RunEvent(PipelineEvent.ERROR, {"code": code, "message": message[:MAX_TEXT_CHARS]}),
            RunEvent(PipelineEvent.RUN_END),
        ]

    def cancel(self) -> list[RunEvent]:
        """Ends the run because the user stopped it. That is no error, which devices show in red."""
        has_raw_sound = self.phase == "speaking" and self._has_raw_speaker
        if not self._advance("over"):
            return []
        events = [RunEvent(PipelineEvent.TTS_STREAM_END)] if has_raw_sound else []
        return [*events, RunEvent(PipelineEvent.RUN_END)]

    def lose(self) -> list[RunEvent]:
        """Ends the run because another device answers the wake word. The device closes its
        microphone and is idle, without a sound.

        Home Assistant sends the error `duplicate_wake_up_detected`, which only some firmware keeps
        from its lights.
        """
        return [RunEvent(PipelineEvent.RUN_END)] if self._advance("over") else []

    def abandon(self) -> None:
        """Ends the run without events: the device has begun another one, or is gone. A RUN_END
        would end its new run."""
        self._advance("over")

    def _answer(self, text: str, *, continues: bool) -> list[RunEvent]:
        events = [self._intent_end(continues=continues)]
        if text.strip():  # an empty text is ignored
            events.append(RunEvent(PipelineEvent.TTS_START, {"text": text[:MAX_TEXT_CHARS]}))
        return [*events, RunEvent(PipelineEvent.TTS_END, {"url": self._url})]

    def _intent_end(self, *, continues: bool) -> RunEvent:
        data = {
            "conversation_id": self._conversation_id,
            "continue_conversation": "1" if continues else "0",
        }
        return RunEvent(PipelineEvent.INTENT_END, data)

    def _advance(self, phase: RunPhase) -> bool:
        """Enters a later phase. Returns False if the run is there already, or further."""
        if _PHASES.index(phase) <= _PHASES.index(self.phase):
            return False
        self.phase = phase
        return True
