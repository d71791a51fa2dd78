"""One run of a device with its session: audio in, events and the sound of the answer out."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from core.audio import ASR_RATE_HZ, Pcm
from core.conversation.events import (
    ErrorEvent,
    InputCommitted,
    OutputAudioDelta,
    OutputTextDelta,
    ResponseDone,
    SessionEvent,
    SpeechStarted,
    TranscriptionCompleted,
    TranscriptionFailed,
    TurnTimeline,
)
from core.errors import Conflict, RequestError
from core.ports import Clock
from devices.esphome.sounds import Sound, SoundFormat, SoundWriter
from devices.fleet.presence import DeviceActivity
from firmware_protocol.esphome.voice_run import NO_TEXT, RunEvent, VoiceRun
from media.pcm import Framer
from media.resample import Resampler
from pipeline.playout.playout import CLIENT_RATE_HZ
from pipeline.session.session import Session

logger = logging.getLogger(__name__)

SPEECH_LIMIT_S = 8.0
"Longest wait for speech after the start; then the device becomes idle."

TURN_LIMIT_S = 30.0
"Longest utterance. Then it is answered even if the user still speaks."

AUDIO_LIMIT_S = 5.0
"""Longest gap in the audio of the microphone. A device that hears sends a chunk every 64 ms; after
this long its network is gone, and its connection ends later, by the library's pings."""

ANSWER_LIMIT_S = 60.0
"Longest wait for the next event of an answer that is being made."

PLAYED_MARGIN_S = 10.0
"""Longest wait for the report that an answer was played, after its length. Not every device
reports, and linux-voice-assistant begins a second late."""

CUT_MARGIN_MS = 500.0
"""An answer whose report comes this much earlier than its end was stopped by the user. Devices
begin to play a moment after they fetch, and report a moment before the last sample."""

EARLY_AUDIO_CHUNKS = 320
"Most chunks that wait for the session: 10 s of a microphone."

WATCH_S = 0.5
"Interval in which the limits are checked."

RAW_RATE_HZ = 16_000
RAW_CHUNK_SAMPLES = 512
RAW_PACE = 0.9
"""Part of the real time that a chunk for a raw speaker is given. Its buffer holds 0.5 s, and drops
what does not fit."""


class DeviceLink(Protocol):
    """The connection to a satellite, as a run uses it. No method raises when it is lost."""

    def send(self, events: Iterable[RunEvent]) -> None: ...

    def send_sound(self, pcm: bytes) -> None: ...

    def stop_playing(self) -> None:
        """Stops the answer on the device."""
        ...


RunEnd = Literal["answered", "failed", "aborted", "replaced", "lost"]
"Outcome of a run. lost: another device answers the wake word."


@dataclass(slots=True)
class _AnswerSoFar:
    """The answer as it comes."""

    text: str = ""
    error: str = ""
    is_complete: bool = False
    items: list[tuple[str, float]] = field(default_factory=list[tuple[str, float]])
    "Spoken items: id, and the position at which its sound begins in ms."


class MicrophoneAudio:
    """Audio of one utterance. What comes before the session is open waits for it."""

    def __init__(self, clock: Clock) -> None:
        self.last_at = clock.now()
        "Monotonic seconds of the last audio."
        self._clock = clock
        self._framer = Framer(ASR_RATE_HZ)
        self._early: list[bytes] = []
        self._session: Session | None = None

    def push(self, data: bytes) -> None:
        """Takes s16le at 16 kHz. An empty chunk (ESPHome 2026.5.0) says nothing."""
        self.last_at = self._clock.now()
        if self._session is None:
            self._early = [*self._early[1 - EARLY_AUDIO_CHUNKS :], data]
            return
        pcm = np.frombuffer(data[: len(data) // 2 * 2], "<i2").astype(np.int16, copy=False)
        if len(pcm):
            for frame in self._framer.push(pcm):
                self._session.feed(frame)

    def attach(self, session: Session) -> None:
        """Passes the audio to the session from now on."""
        self._session, early, self._early = session, self._early, []
        for data in early:
            self.push(data)


class ConversationRun:
    """Carries out one run. `run` returns when the answer was played, or the run ended without."""

    def __init__(
        self,
        link: DeviceLink,
        voice_run: VoiceRun,
        sound: Sound,
        sound_format: SoundFormat,
        clock: Clock,
        on_change: Callable[[], None],
        *,
        has_raw_speaker: bool,
        question: "asyncio.Future[str | None] | None" = None,
    ) -> None:
        """on_change: called when the activity may have changed. question: gets the words, which the
        assistant then does not answer; None: they are for the assistant."""
        self.question = question
        self.microphone = MicrophoneAudio(clock)
        self.marks: Mapping[str, float] | None = None
        "Marks of its turn; None: the turn is not over."
        self.error_code = ""
        "Stable code of what failed; empty: nothing did."
        self.late_text = ""
        """Words that the session spoke after the answer was complete, such as those of a timer. The
        device did not get them."""
        self._work: list[asyncio.Task[None]] = []
        self._link, self._voice_run, self._sound = link, voice_run, sound
        self._format, self._clock, self._on_change = sound_format, clock, on_change
        self._has_raw_speaker = has_raw_speaker
        self._answer = _AnswerSoFar()
        self._writer: SoundWriter | None = None
        self._raw: asyncio.Queue[Pcm | None] = asyncio.Queue()
        self._began_at = self._heard_at = clock.now()
        self._progress_at = clock.now()
        self._end: asyncio.Future[RunEnd] = asyncio.get_running_loop().create_future()
        self._was_played = asyncio.Event()
        self._session: Session | None = None

    # What the device reports. Nothing here may raise: the library drops the exception, and the
    # device then waits for ever.

    def audio(self, data: bytes) -> None:
        """Takes a chunk of the microphone."""
        if self._voice_run.takes_audio:
            self.microphone.push(data)

    def end_of_audio(self) -> None:
        """The device closed its microphone by itself: what was said is answered."""
        if self._voice_run.takes_audio and self._session is not None:
            self._commit()

    def abort(self) -> None:
        """The user stopped the run, on the device or from here."""
        if self._voice_run.is_over:
            if self._writer is not None:  # the answer is complete, and being played
                self._sound.close()
                self._link.stop_playing()
                self._was_played.set()
            return
        self._send(self._voice_run.cancel())
        self._finish("aborted")

    def replace(self) -> None:
        """The device has begun another run."""
        self._voice_run.abandon()
        self._finish("replaced")

    def played(self) -> None:
        """The device has played the answer, or stopped playing it."""
        self._was_played.set()

    @property
    def activity(self) -> DeviceActivity:
        """Present activity. The device is idle only after the run."""
        if self._writer is not None:
            return "speaking"
        is_early = self._voice_run.phase in ("new", "listening", "hearing")
        return "listening" if is_early else "thinking"

    def refuse(self, code: str, message: str) -> None:
        """Ends the run before it has a session."""
        self.error_code = code
        self._send([*self._voice_run.start(), *self._voice_run.fail(code, message)])

    def lose(self) -> None:
        """Ends the run before it has a session: another device answers the wake word."""
        self._send(self._voice_run.lose())
        self._finish("lost")

    @property
    def end(self) -> RunEnd | None:
        """Outcome of the run; None: it is not over."""
        return self._end.result() if self._end.done() else None

    async def run(self, session: Session) -> RunEnd:
        """Runs it to its end. Closes nothing: session and sound are the caller's."""
        self._session = session
        self._send(self._voice_run.start())
        self.microphone.attach(session)
        async with asyncio.TaskGroup() as tasks:
            self._work = [
                tasks.create_task(self._follow(session, tasks), name="esphome-events"),
                tasks.create_task(self._watch(), name="esphome-limits"),
            ]
            if self._has_raw_speaker:
                self._work.append(tasks.create_task(self._play_raw(), name="esphome-speaker"))
            end = await self._end
            for task in self._work:
                task.cancel()
        if end != "answered":
            self._interrupt(session)
        return end

    def note_last_event(self, event: SessionEvent) -> None:
        """Notes an event that came when the session closed, such as the turn's timeline: the device
        may have stopped playing before the session expected it."""
        if isinstance(event, TurnTimeline):
            self.marks = dict(event.marks)

    # Events of the session.

    async def _follow(self, session: Session, tasks: asyncio.TaskGroup) -> None:
        async for event in session.events:
            self._progress_at = self._clock.now()
            self._take_event(event, session, tasks)
        self._fail("session_closed", "The server ends the session")

    def _take_event(self, event: SessionEvent, session: Session, tasks: asyncio.TaskGroup) -> None:
        voice_run = self._voice_run
        match event:
            case SpeechStarted():
                self._heard_at = self._clock.now()
                self._send(voice_run.speech_started())
            case InputCommitted():
                self._send(voice_run.speech_ended())
            case TranscriptionCompleted(transcript=text):
                self._send(voice_run.transcript(text))
                if voice_run.is_over:
                    self._finish("failed")
                elif self.question is not None:
                    if not self.question.done():
                        self.question.set_result(text)
                    self._send(voice_run.finish("", continues=False))
                    self._finish("answered")
                elif voice_run.phase == "thinking":
                    answered = self._answered(session)
                    self._work.append(tasks.create_task(answered, name="esphome-answer"))
            case TranscriptionFailed(code=code, message=message):
                self._fail(code, message)
            case OutputTextDelta(delta=delta) if self._answer.is_complete:
                self.late_text += delta
            case OutputTextDelta(delta=delta):
                self._answer.text += delta
            case OutputAudioDelta(item_id=item_id, pcm=pcm):
                self._take_sound(item_id, pcm)
            case ResponseDone(status="failed", error_code=code, error_message=message):
                self._answer.error = code or "response_failed"
                logger.info("! esphome: a response failed: %s %s", code, message)
            case ErrorEvent(code=code):
                self.error_code = code
            case TurnTimeline(marks=marks):
                self.marks = dict(marks)
            case _:
                pass

    def _take_sound(self, item_id: str, pcm: Pcm) -> None:
        if self._answer.is_complete or not len(pcm):
            return
        if self._writer is None:
            self._writer = SoundWriter(self._sound, CLIENT_RATE_HZ, self._format)
        if not self._answer.items or self._answer.items[-1][0] != item_id:
            self._answer.items.append((item_id, self._writer.audio_ms))
        self._writer.write(pcm)
        if self._has_raw_speaker:
            self._raw.put_nowait(pcm)
        if self._sound.size_bytes or self._has_raw_speaker:
            self._send(self._voice_run.sound_ready(self._answer.text))

    async def _answered(self, session: Session) -> None:
        """Ends the run when the whole answer is made, and returns when it was played."""
        await session.settled()
        await session.events.room(1)  # the last events may be unread
        self._answer.is_complete = True
        text, writer = self._answer.text.strip(), self._writer
        if writer is None and self._answer.error:
            self._fail(self._answer.error, "The answer failed")
            return
        if writer is not None:
            writer.complete()
            self._raw.put_nowait(None)
            if not self._has_raw_speaker:
                self._send(self._voice_run.sound_ready(text))
                self._send(self._voice_run.finish(text, continues=is_question(text)))
            with suppress(TimeoutError):
                async with asyncio.timeout(writer.audio_ms / 1000 + PLAYED_MARGIN_S):
                    await self._was_played.wait()
            self._cut_unplayed(session, writer)
        self._send(self._voice_run.finish(text, continues=False))
        self._finish("answered")

    def _cut_unplayed(self, session: Session, writer: SoundWriter) -> None:
        """Cuts the history to what was played, if the user stopped the answer early."""
        if self._sound.fetched_at is None:
            return
        played_ms = 1000 * (self._clock.now() - self._sound.fetched_at)
        ends_ms = [*(begin for _, begin in self._answer.items[1:]), writer.audio_ms]
        for (item_id, begins_ms), end_ms in zip(self._answer.items, ends_ms, strict=True):
            if played_ms < end_ms - CUT_MARGIN_MS:
                with suppress(RequestError):
                    session.truncate(item_id, max(0, round(played_ms - begins_ms)))

    def _interrupt(self, session: Session) -> None:
        """Stops the answer, here and on the device."""
        self._sound.close()
        with suppress(Conflict):
            session.cancel_response()
        session.clear_output()
        if self._writer is not None:
            self._link.stop_playing()

    # Raw speakers.

    async def _play_raw(self) -> None:
        """Sends the sound to a device that plays what it is sent, at its pace."""
        resampler, due_at = Resampler(CLIENT_RATE_HZ, RAW_RATE_HZ), self._clock.now()
        while True:
            pcm = await self._raw.get()
            sound = resampler.flush() if pcm is None else resampler.push(pcm)
            due_at = max(due_at, self._clock.now())
            for at in range(0, len(sound), RAW_CHUNK_SAMPLES):
                await asyncio.sleep(due_at - self._clock.now())
                chunk = sound[at : at + RAW_CHUNK_SAMPLES]
                self._link.send_sound(chunk.astype("<i2").tobytes())
                due_at += RAW_PACE * len(chunk) / RAW_RATE_HZ
            if pcm is None:
                self._send(self._voice_run.finish("", continues=False))
                self._was_played.set()
                return

    # Limits.

    async def _watch(self) -> None:
        """Ends a run that does not go on: neither side has a limit of its own."""
        while True:
            now, phase = self._clock.now(), self._voice_run.phase
            if phase == "listening" and now >= self._began_at + SPEECH_LIMIT_S:
                self._fail(NO_TEXT, "Nobody spoke")
            elif self._voice_run.takes_audio and now >= self.microphone.last_at + AUDIO_LIMIT_S:
                self._fail("no_audio", "The microphone sends nothing")
            elif phase == "hearing" and now >= self._heard_at + TURN_LIMIT_S:
                self._commit()
            elif (
                phase in ("recognising", "thinking", "speaking")
                and now >= self._progress_at + ANSWER_LIMIT_S
                and not self._has_raw_speaker
            ):
                self._fail("timeout", "The answer takes too long")
            await asyncio.sleep(WATCH_S)

    def _commit(self) -> None:
        assert self._session is not None
        try:
            self._session.commit_input()
        except RequestError:  # there was no speech
            self._fail(NO_TEXT, "Nobody spoke")

    # Ends.

    def _fail(self, code: str, message: str) -> None:
        if code != NO_TEXT:
            self.error_code = code
        self._send(self._voice_run.fail(code, message))
        self._finish("failed")

    def _finish(self, end: RunEnd) -> None:
        if not self._end.done():
            self._end.set_result(end)
        self._on_change()

    def _send(self, events: Iterable[RunEvent]) -> None:
        self._link.send(events)
        self._on_change()


def is_question(text: str) -> bool:
    """Returns True if the assistant asks something, so that the device listens again."""
    return text.rstrip(" \"'»”)").endswith(("?", "？", "؟", ";"))
